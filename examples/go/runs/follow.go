// Package runs follows a run: everything that is stored, in order and once, then live, until it ends.
//
// Only the run's republished subjects and reading back are used: no consumer, no state on the server. The two subjects of a run, log
// (facts) and stream (tokens, progress), have a cursor each. A gap shows in Nats-Last-Sequence and is read back before anything after it
// is shown; a lost last message shows in the look at the tail that follows a quiet while, a reconnect, and the end of the run.
package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	quiet     = 3 * time.Second
	buffered  = 4096
	page      = 500
	pageBytes = 4 << 20
)

var kinds = []string{"log", "stream"}

// Event is one event of a run. Body is the whole event as JSON, its type included.
type Event struct {
	Kind     string // log or stream
	Sequence uint64
	Type     string
	Body     json.RawMessage
}

// record is one stored message: the events of one transition.
type record struct {
	kind     string
	sequence uint64
	previous uint64 // on the same subject; only live messages know it
	events   []Event
	terminal bool
}

// Follower is one listener of one run.
type Follower struct {
	nc    *nats.Conn
	name  string // tenant.run
	at    map[string]uint64
	live  chan *nats.Msg
	stale <-chan struct{}
	ended bool
}

// NewFollower prepares to follow a run from its beginning. stale signals that messages may have been missed: after a reconnect.
func NewFollower(nc *nats.Conn, tenant, run string, stale <-chan struct{}) *Follower {
	return &Follower{nc: nc, name: tenant + "." + run, at: map[string]uint64{}, live: make(chan *nats.Msg, buffered), stale: stale}
}

// Follow calls show for every event in order, until the run has ended or the context is done. What comes too fast is dropped by the
// client and read back.
func (f *Follower) Follow(ctx context.Context, show func(Event)) error {
	subscription, err := f.nc.ChanSubscribe("run."+f.name+".*", f.live)
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	f.catchUp(ctx, nil, show)
	for !f.ended {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.stale:
			f.catchUp(ctx, nil, show)
		case <-time.After(quiet):
			f.catchUp(ctx, nil, show)
		case message := <-f.live:
			next, err := read(message, message.Subject)
			if err != nil {
				continue // Not a republished record: somebody wrote to the live subject directly.
			}
			if next.previous > f.at[next.kind] || next.terminal {
				f.catchUp(ctx, next, show)
			} else {
				f.pass([]*record{next}, show)
			}
		}
	}
	return nil
}

// catchUp reads both subjects back, for as long as the server is unavailable, and merges them with what came live meanwhile.
func (f *Follower) catchUp(ctx context.Context, next *record, show func(Event)) {
	for ctx.Err() == nil {
		found, err := f.readBack()
		if err == nil {
			if next != nil {
				found = append(found, next)
			}
			for len(f.live) > 0 {
				message := <-f.live
				if one, err := read(message, message.Subject); err == nil {
					found = append(found, one)
				}
			}
			slices.SortStableFunc(found, func(a, b *record) int { return cmp.Compare(a.sequence, b.sequence) })
			f.pass(found, show)
			return
		}
		time.Sleep(quiet / 10)
	}
}

func (f *Follower) pass(found []*record, show func(Event)) {
	for _, one := range found {
		if f.ended || one.sequence <= f.at[one.kind] {
			continue
		}
		f.at[one.kind] = one.sequence
		f.ended = one.terminal
		for _, event := range one.events {
			show(event)
		}
	}
}

func (f *Follower) readBack() ([]*record, error) {
	if err := f.nc.Flush(); err != nil {
		return nil, err
	}
	var found []*record
	for _, kind := range kinds {
		part, err := readSubject(f.nc, "emit."+f.name+"."+kind, f.at[kind])
		if err != nil {
			return nil, err
		}
		found = append(found, part...)
	}
	// What was stored between the two reads is in the channel after this, so that the merge is in order.
	return found, f.nc.Flush()
}

// readSubject reads everything on an exact subject after a sequence (batched direct get, ADR-31).
func readSubject(nc *nats.Conn, subject string, after uint64) ([]*record, error) {
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = inbox.Unsubscribe() }()
	var found []*record
	for {
		request, _ := json.Marshal(map[string]any{"batch": page, "seq": after + 1, "next_by_subj": subject, "max_bytes": pageBytes})
		if err := nc.PublishRequest("$JS.API.DIRECT.GET.RUNS", inbox.Subject, request); err != nil {
			return nil, err
		}
		for {
			message, err := inbox.NextMsg(5 * time.Second)
			if err != nil {
				return nil, err
			}
			// 404: nothing there. 204: the end of a page, with the number of messages after it.
			switch message.Header.Get("Status") {
			case "":
				one, err := read(message, subject)
				if err != nil {
					return nil, err
				}
				found, after = append(found, one), one.sequence
				continue
			case "404":
				return found, nil
			case "204":
			default:
				return nil, fmt.Errorf("reading back ended with status %s", message.Header.Get("Status"))
			}
			if left := message.Header.Get("Nats-Num-Pending"); left == "" || left == "0" {
				return found, nil
			}
			break
		}
	}
}

func read(message *nats.Msg, subject string) (*record, error) {
	sequence, err := strconv.ParseUint(message.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, err
	}
	previous, _ := strconv.ParseUint(message.Header.Get("Nats-Last-Sequence"), 10, 64)
	one := &record{kind: subject[strings.LastIndexByte(subject, '.')+1:], sequence: sequence, previous: previous}
	var body struct {
		V      int               `json:"v"`
		Events []json.RawMessage `json:"events"`
	}
	if err := json.Unmarshal(message.Data, &body); err != nil {
		return nil, err
	}
	if body.V != 1 {
		return nil, errors.New("a record of an unknown version")
	}
	for _, event := range body.Events {
		var tag struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(event, &tag); err != nil {
			return nil, err
		}
		one.events = append(one.events, Event{Kind: one.kind, Sequence: sequence, Type: tag.Type, Body: event})
		one.terminal = one.terminal || tag.Type == "done" || tag.Type == "error" || tag.Type == "cancelled"
	}
	return one, nil
}
