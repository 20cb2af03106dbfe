package pages

import (
	"context"
	"embed"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/internal/web/problem"
)

//go:embed html
var templates embed.FS

// Site serves the dashboard. It is safe for concurrent use.
type Site struct {
	client *client.Client
	shell  *shell.Site
	mux    *http.ServeMux
	boards *board.Source
	recent func(context.Context) (unkept []client.Event, since time.Time, err error)
	tails  *semaphore.Weighted // bounds the outputs that are followed

	verdicts board.Background[struct{}, verdict]
	accounts board.Background[accountKey, account]
	checks   board.Background[checkKey, checked]

	work      work
	repairing sync.WaitGroup

	closing context.Context
	close   context.CancelFunc
}

// New returns a handler of the pages. It sets the Templates of the Config. Close the Site at the
// end.
func New(cfg shell.Config) *Site {
	cfg.Templates = templates
	s := &Site{client: cfg.Client, mux: http.NewServeMux(), recent: cfg.Recent, tails: semaphore.NewWeighted(maxTails)}
	s.closing, s.close = context.WithCancel(context.Background())
	s.boards = board.NewSource(s.closing, cfg.Client)
	s.verdicts = board.Background[struct{}, verdict]{Context: s.closing, Every: time.Minute, Max: 1}
	s.accounts = board.Background[accountKey, account]{Context: s.closing, Every: 2 * time.Second, Max: 100}
	s.checks = board.Background[checkKey, checked]{Context: s.closing, Every: 30 * time.Second, Max: 20}
	all := s.pages()
	if cfg.Document != nil {
		all = append(all, shell.Reference(cfg.Document))
	}
	s.shell = shell.New(cfg, all)
	s.mux.HandleFunc("GET /slots/{id}/tail", s.tail)
	s.mux.Handle("/", s.shell)
	return s
}

func (s *Site) pages() []shell.Page {
	return append(s.orders(),
		s.now(), s.jobs(), s.bulk(), s.job(), s.schedule(), s.slots(), s.slot(), s.nodes(), s.activity(), s.health(), s.repairPage(),
		slotOrder("retry", sayRetry, doRetry), slotOrder("cancel", sayCancel, doCancel))
}

// Close ends the streams and the computations in the background.
func (s *Site) Close() {
	s.close()
	s.shell.Close()
	s.boards.Wait()
	s.verdicts.Wait()
	s.accounts.Wait()
	s.checks.Wait()
	s.repairing.Wait()
}

// ServeHTTP implements http.Handler.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// board returns the board for a page. If the page is opened, the board is at most half a second
// old, provided that the broker answers quickly. If the page is refreshed, the board includes the
// changes that caused the refresh.
func (s *Site) board(r *shell.Request) (*board.Board, error) {
	notBefore, acceptOld := r.News, false
	if notBefore.IsZero() {
		notBefore, acceptOld = time.Now().Add(-500*time.Millisecond), true
	}
	b, err := s.boards.Get(r.Context(), notBefore, acceptOld)
	if slow, ok := errors.AsType[*board.ReadingError](err); ok {
		return nil, problem.New(fault.Unavailable, slow.Error()+": the first reading of a process takes longer the more jobs there are, and none ends while the NATS server does not answer")
	}
	return b, err
}

// The rights that orders need.
func edits(r client.Rights) bool   { return r.Edit }
func starts(r client.Rights) bool  { return r.Start }
func reopens(r client.Rights) bool { return r.Reopen }

// permit removes the button and the visible fields if the login may not give the order, and says so.
func (o *order) permit(r *shell.Request, needs func(client.Rights) bool) {
	if needs(r.May) {
		return
	}
	o.Ready, o.Preview = false, ""
	o.Says = []string{"The NATS login of this process may not do that. The NATS server decides which orders it may give: " +
		`see "cronce auth operator", or use a process that has such a login.`}
	o.Fields = slices.DeleteFunc(o.Fields, func(f field) bool { return f.Kind != "hidden" })
}
