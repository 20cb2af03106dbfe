package shell

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed html static
var files embed.FS

// layout returns the templates that all pages share.
func layout() *template.Template {
	return template.Must(template.New("").ParseFS(files, "html/layout.html", "html/parts.html"))
}

// asset is a file of the folder "static". The hash of its content is in its name, so that browsers
// may keep it for ever.
type asset struct {
	hashed, media string
	data, zipped  []byte
}

var mediaTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml",
}

// assets has the assets by their plain names, hashedAssets by the names that browsers ask for.
var assets, hashedAssets = readAssets()

func readAssets() (plain, hashed map[string]*asset) {
	plain, hashed = map[string]*asset{}, map[string]*asset{}
	entries, err := files.ReadDir("static")
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	for _, e := range entries {
		data, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		ext := path.Ext(e.Name())
		a := &asset{hashed: strings.TrimSuffix(e.Name(), ext) + "-" + hex.EncodeToString(sum[:6]) + ext, media: mediaTypes[ext], data: data, zipped: zip(data, newWriter(gzip.BestCompression))}
		plain[e.Name()], hashed[a.hashed] = a, a
	}
	return plain, hashed
}

// writers are reused for pages, since a new one allocates a megabyte.
var writers = sync.Pool{New: func() any { return newWriter(gzip.BestSpeed) }}

func newWriter(level int) *gzip.Writer {
	z, err := gzip.NewWriterLevel(nil, level)
	if err != nil {
		panic(err) // the levels are constants of the package
	}
	return z
}

func zipPage(data []byte) []byte {
	z := writers.Get().(*gzip.Writer)
	defer writers.Put(z)
	return zip(data, z)
}

func zip(data []byte, z *gzip.Writer) []byte {
	var b bytes.Buffer
	z.Reset(&b)
	_, err := z.Write(data)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(err) // cannot happen: a buffer takes everything
	}
	return b.Bytes()
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a := hashedAssets[r.PathValue("name")]
	if a == nil {
		http.NotFound(w, r) // an asset of another version: the page that names it comes from another replica
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.media)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	data := a.data
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		data = a.zipped
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data) // fails only if the browser is gone
}
