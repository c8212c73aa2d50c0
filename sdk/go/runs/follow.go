// Package runs follows a run live over NATS, until it ends, with the rights of a listener: the live subjects, and the last record of the
// log. It holds no state on the server.
//
// The two subjects of a run, log (facts) and stream (tokens, progress), have a cursor each. A gap shows in Nats-Last-Sequence; a lost last
// record shows when the log is checked, after a quiet while and after a reconnect. What was missed is read from the gateway, where
// RUNWIRE_URL or RUNWIRE_API_KEY is set. Otherwise it is named, and the last record of the log is shown: how the run stands.
package runs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"runwire"
)

const (
	quiet    = 3 * time.Second
	buffered = 4096
)

// follower is one listener of one run.
type follower struct {
	nc      *nats.Conn
	name    string // tenant.run
	at      map[string]uint64
	live    chan *nats.Msg
	history *history
	show    func(Event)
	ended   bool
}

// Follow shows every event of a run in order, until the run has ended, the context is done, or the connection is closed for good.
func Follow(ctx context.Context, tenant, run string, show func(Event)) error {
	reconnected := make(chan struct{}, 1) // Messages may have been missed.
	nc, closed, err := runwire.Connect("runs", nats.ReconnectHandler(func(*nats.Conn) {
		select {
		case reconnected <- struct{}{}:
		default: // It is signalled already.
		}
	}))
	if err != nil {
		return err
	}
	defer nc.Close()
	f := &follower{nc: nc, name: tenant + "." + run, at: map[string]uint64{}, live: make(chan *nats.Msg, buffered), history: historyOf(run), show: show}
	subscription, err := f.nc.ChanSubscribe("run."+f.name+".*", f.live)
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	if err := f.nc.Flush(); err != nil {
		return err
	}
	if err := f.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: `runwire credentials listener TENANT` gives a credential for the runs of a tenant", err)
	}
	f.checkLog(ctx)
	for !f.ended {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-closed:
			return err
		case <-reconnected:
			f.checkLog(ctx)
		case <-time.After(quiet):
			f.checkLog(ctx)
		case message := <-f.live:
			f.receive(ctx, message)
		}
	}
	return nil
}

// receive shows a live record, after what was missed before it.
func (f *follower) receive(ctx context.Context, message *nats.Msg) {
	next, err := read(message)
	if err != nil {
		return
	}
	if next.previous > f.at[next.kind] {
		f.catchUp(ctx, next.kind, next.previous)
	}
	if next.isTerminal() && f.history != nil {
		f.catchUp(ctx, next.kind, next.sequence) // The last tokens have no successor that would show a gap.
	}
	f.pass(next)
}

// checkLog shows what the log has and this follower lacks.
func (f *follower) checkLog(ctx context.Context) {
	message, err := f.nc.Request("$JS.API.DIRECT.GET.RUNS.emit."+f.name+".log", nil, quiet)
	if err != nil {
		log.Printf("the log cannot be checked: %v", err)
		return
	}
	for len(f.live) > 0 { // They were sent before the answer.
		f.receive(ctx, <-f.live)
	}
	if last, err := read(message); err == nil && last.sequence > f.at["log"] {
		f.catchUp(ctx, "log", last.sequence)
		f.pass(last)
	}
}

// catchUp shows what is stored up to this sequence of a subject, for as long as the gateway is unavailable.
func (f *follower) catchUp(ctx context.Context, kind string, sequence uint64) {
	for ctx.Err() == nil && f.at[kind] < sequence && !f.ended {
		if f.history == nil {
			log.Printf("earlier events of the %s may be missing, before number %d: set RUNWIRE_URL and RUNWIRE_API_KEY to see them", kind, sequence)
			return
		}
		known, err := f.history.read(ctx, f.at, kind, sequence, f.pass)
		if err != nil && !f.ended {
			log.Printf("reading what is stored: %v", err)
			if !known {
				f.history = nil
			}
			time.Sleep(quiet / 10)
		}
	}
}

func (f *follower) pass(one *record) {
	if f.ended || one.sequence <= f.at[one.kind] {
		return
	}
	f.at[one.kind] = one.sequence
	f.ended = one.isTerminal()
	for _, event := range one.events {
		f.show(event)
	}
}
