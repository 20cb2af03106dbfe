package wire

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
)

// The broker reads a stream only forward. Backward therefore reads windows of sequence numbers,
// each before the previous one. Measured with a million keys, in a stream with gaps because a tenth
// of the messages was overwritten: one message by its sequence takes 30 µs. A batch takes 2 ms if
// 10,000 keys match its filter, and more than a second if all do, because the broker visits each
// such key to count what is pending. So Backward chooses:
//   - At first, and while many of the newest messages have the prefix, it reads each message of a
//     window with a request of its own.
//   - After that it reads batches with a filter, from windows that grow.
//   - If few messages of the first such window match, it asks whether few keys have the prefix. If
//     so, it reads the last message of each; see Few.
const (
	firstWindow  = 64
	mostWindow   = 512
	denseShare   = 16 // a prefix is dense if at least one of denseShare sequences in a window has it
	sparseWindow = 4096
	sparseGrowth = 8
	sparseFound  = 16 // a window with fewer matches is followed by a larger one
)

// Backward iterates over the messages whose keys begin with prefix, which is empty or ends
// with a dot, in batches, newest first. The number of requests depends on how many messages
// the caller takes, and not on how many the bucket has. Delete markers are included. The
// newest messages may be missing. The iteration stops at the first error.
func (b Bucket) Backward(ctx context.Context, prefix string) iter.Seq2[[]Entry, error] {
	subject := b.Subject(prefix)
	return backward{b: b, title: "bucket " + b.Name, prefix: subject, filter: subject + ">", all: prefix == "", size: firstWindow}.iterate(ctx)
}

// Backward iterates over the messages of a stream that match filter, as Bucket.Backward does. It suits a
// stream with few subjects and many messages of each.
func (w Wire) Backward(ctx context.Context, stream, filter string) iter.Seq2[[]Entry, error] {
	b := Bucket{Wire: w, Stream: stream}
	return backward{b: b, title: "stream " + stream, filter: filter, sparse: true, many: true, size: mostWindow}.iterate(ctx)
}

func (r backward) iterate(ctx context.Context) iter.Seq2[[]Entry, error] {
	return func(yield func([]Entry, error) bool) {
		r := r // each iteration begins at the end
		info, err := r.b.StreamInfo(ctx, "look for the end of "+r.b.Stream, r.b.Stream)
		if err != nil {
			yield(nil, err)
			return
		}
		r.end = info.State.LastSeq + 1
		for r.end > max(1, info.State.FirstSeq) {
			found, err := r.step(ctx)
			slices.SortFunc(found, func(x, y Entry) int { return cmp.Compare(y.Revision, x.Revision) })
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// backward is one iteration of Backward. Everything from the sequence end on has been read.
type backward struct {
	b      Bucket
	title  string // of the bucket or the stream
	prefix string // of the subjects
	filter string // the same as a filter
	all    bool   // every key has the prefix
	end    uint64
	size   uint64 // of the next window
	sparse bool   // the next window has a filter
	many   bool   // many keys have the prefix
}

// step reads the next window, and moves end to its beginning.
func (r *backward) step(ctx context.Context) (found []Entry, err error) {
	if !r.sparse {
		return r.readEach(ctx)
	}
	found, err = r.readMatching(ctx)
	if err != nil || len(found) >= sparseFound {
		return found, err
	}
	r.size *= sparseGrowth
	if r.many {
		return found, nil
	}
	few, complete, err := r.b.Few(ctx, r.b.Stream, r.filter)
	if err == nil && complete {
		found = append(found, slices.DeleteFunc(few, func(e Entry) bool { return e.Revision >= r.end })...)
		r.end = 0
	}
	r.many = true // if Few failed, the read of the next window gets the same error and retries
	return found, nil
}

// readEach reads a window message by message.
func (r *backward) readEach(ctx context.Context) (found []Entry, err error) {
	begin, dense := r.end-min(r.size, r.end-1), r.size/denseShare
	err = r.b.UntilAnswered(ctx, r.title, func() (err error) {
		found, err = r.b.messages(ctx, r.b.Stream, begin, r.end)
		return err
	})
	r.end, r.size = begin, min(2*r.size, mostWindow)
	if err != nil || r.all {
		return found, err
	}
	found = slices.DeleteFunc(found, func(e Entry) bool { return !strings.HasPrefix(e.Subject, r.prefix) })
	if uint64(len(found)) < dense {
		r.sparse, r.size = true, sparseWindow
	}
	return found, nil
}

func (r *backward) readMatching(ctx context.Context) (all []Entry, err error) {
	end, begin := r.end, uint64(1)
	if end > r.size {
		begin = end - r.size
	}
	r.end = begin
	for from := begin; from < end; {
		var found []Entry
		var more bool
		err := r.b.UntilAnswered(ctx, r.title, func() (err error) {
			found, more, err = r.b.Get(ctx, r.b.Stream, map[string]any{"seq": from, "batch": min(end-from, getSize), "next_by_subj": r.filter})
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if e.Revision >= end {
				return all, nil
			}
			all = append(all, e)
			from = e.Revision + 1
		}
		if !more || len(found) == 0 {
			break
		}
	}
	return all, nil
}
