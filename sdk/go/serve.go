package runwire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

const (
	heartbeatEvery = 500 * time.Millisecond
	maxFinished    = 1000
)

// heartbeatS is announced: twice the interval, so that one late heartbeat raises no alarm.
const heartbeatS = 2 * float64(heartbeatEvery) / float64(time.Second)

var heartbeat = replyOf("heartbeat", map[string]float64{"every_s": heartbeatS})

// Served is a tool on the bus.
//
// Calls run at the same time, each in a goroutine: endpoints of the micro package take one call at a time, and tool_runner limits
// how many, over all instances. The function runs once per idempotency key and round: a repeated request, or one on .status, joins the call in
// flight, and a call that has ended is answered again, never executed again.
type Served struct {
	nc            *nats.Conn
	spec          Spec
	work          func(*Context) (any, error)
	service       micro.Service
	subscriptions []*nats.Subscription
	running       sync.WaitGroup

	mutex    sync.Mutex
	clock    callerClock
	calls    map[callKey]*callState
	finished []callKey
}

// callKey identifies a round of a call: after a pause the function runs again.
type callKey struct {
	IdempotencyKey string `json:"idempotency_key"`
	Round          int    `json:"round"`
}

func (c Call) key() callKey { return callKey{c.IdempotencyKey, c.Round} }

// Serve serves calls on tool.<name> and announces the tool: a NATS micro service whose metadata is its specification.
//
// The schemas are made of the types of arguments and result, unless the specification has them: see SchemaOf. The function may take its
// time; it ends early when its context is done.
func Serve[A, R any](nc *nats.Conn, spec Spec, work func(*Context, A) (R, error)) (*Served, error) {
	spec.HeartbeatS, spec.Version = heartbeatS, cmp.Or(spec.Version, "1.0.0")
	if spec.InputSchema == nil {
		spec.InputSchema = SchemaOf[A]()
	}
	if spec.OutputSchema == nil {
		spec.OutputSchema = SchemaOf[R]()
	}
	called := func(ctx *Context) (any, error) {
		var args A
		if err := json.Unmarshal(ctx.Call.Args, &args); err != nil {
			return nil, &Error{Reason: err.Error(), Code: "invalid_args"}
		}
		return work(ctx, args)
	}
	s := &Served{nc: nc, spec: spec, work: called, calls: map[callKey]*callState{}, clock: callerClock{declined: map[callKey]bool{}}}
	described, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	subject := "tool." + spec.Name
	// Every instance receives these; only the one that has the call answers.
	for suffix, answer := range map[string]nats.MsgHandler{".status": s.onStatus, ".cancel": s.onCancel} {
		subscription, err := nc.Subscribe(subject+suffix, answer)
		if err != nil {
			return nil, err
		}
		s.subscriptions = append(s.subscriptions, subscription)
	}
	s.service, err = micro.AddService(nc, micro.Config{Name: spec.Name, Version: spec.Version, Description: spec.Description})
	if err != nil {
		return nil, err
	}
	err = s.service.AddEndpoint(spec.Name, micro.HandlerFunc(s.onRequest),
		micro.WithEndpointSubject(subject),
		micro.WithEndpointQueueGroup(spec.Name),
		micro.WithEndpointMetadata(map[string]string{"runwire.spec": string(described)}),
	)
	if err != nil {
		return nil, err
	}
	if err := nc.Flush(); err != nil {
		return nil, err
	}
	if errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		return nil, fmt.Errorf("the credential does not allow the tool %[1]s: `runwire credentials tool %[1]s` gives one that does", spec.Name)
	}
	return s, nil
}

// Stop takes no more calls and waits for those in flight, at most for grace.
func (s *Served) Stop(grace time.Duration) error {
	err := s.service.Stop()
	ended := make(chan struct{})
	go func() { s.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(grace):
	}
	for _, subscription := range s.subscriptions {
		err = errors.Join(err, subscription.Unsubscribe())
	}
	return errors.Join(err, s.nc.Flush())
}

func (s *Served) onRequest(request micro.Request) {
	var call Call
	if err := json.Unmarshal(request.Data(), &call); err != nil || call.IdempotencyKey == "" {
		refusal := replyOf("failure", &Error{Reason: "not a tool call", Code: "bad_request"})
		_ = s.nc.PublishMsg(refusal.message(request.Reply()))
		return
	}
	s.mutex.Lock()
	known := s.calls[call.key()]
	if known == nil && !s.clock.isLate(call) {
		known = s.start(call)
	}
	s.mutex.Unlock()
	if known == nil {
		late := replyOf("failure", &Error{Reason: "the call came too late and was not started", Code: "deadline_passed", Retryable: true})
		if call.UnderstandsDeclined {
			late = replyOf("declined", map[string]string{"reason": "late"})
		}
		_ = s.nc.PublishMsg(late.message(request.Reply()))
		return
	}
	known.join(request.Reply())
}

// callerClock is the clock of those who call, as far as their requests tell: that of this machine may be wrong.
type callerClock struct {
	ahead    int64            // ms by which this machine's clock is ahead
	declined map[callKey]bool // requests that seemed late, and were not repeated yet
}

// isLate: a process that was stopped finds old requests in its socket when it wakes up. They are declined. Who repeats one has read that, so a
// repetition that still seems late says how far this machine's clock is ahead. A request from the future says that it is behind.
func (c *callerClock) isLate(call Call) bool {
	now := time.Now().UnixMilli()
	if call.SentAt != nil {
		seems := now - *call.SentAt
		if c.declined[call.key()] || seems < c.ahead {
			c.ahead = seems
		}
		delete(c.declined, call.key())
	}
	late := now-c.ahead > call.DeadlineAt || call.StartBy != nil && now-c.ahead > *call.StartBy
	if late && call.UnderstandsDeclined {
		c.declined[call.key()] = true
	}
	return late
}

func (s *Served) start(call Call) *callState {
	ctx, cancel := context.WithCancelCause(context.Background())
	ctx, release := context.WithDeadlineCause(ctx, time.UnixMilli(call.DeadlineAt+s.clock.ahead), &Error{Reason: "the call's deadline passed", Code: "deadline_passed"})
	state := &callState{nc: s.nc, call: call, cancel: cancel}
	s.calls[call.key()] = state
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer release()
		defer cancel(nil)
		state.end(s.settle(ctx, state))
		s.remember(call.key())
	}()
	return state
}

// settle runs the function and returns what ends the call. A function that ignores the end of its context goes on alone.
func (s *Served) settle(ctx context.Context, state *callState) []reply {
	outcome := make(chan []reply, 1)
	go func() {
		replies := failure(errors.New("the tool's goroutine ended by itself")) // runtime.Goexit; a panic is recovered in run.
		defer func() { outcome <- replies }()
		replies = s.run(contextOf(ctx, state))
	}()
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case replies := <-outcome:
			return replies
		case <-ctx.Done():
			return failure(context.Cause(ctx))
		case <-ticker.C:
			state.send(heartbeat)
		}
	}
}

func (s *Served) run(ctx *Context) (replies []reply) {
	defer func() {
		if panicked := recover(); panicked != nil {
			replies = failure(fmt.Errorf("panic: %v", panicked))
		}
	}()
	result, err := s.work(ctx)
	if err != nil {
		return failure(err)
	}
	return resultReplies(result)
}

func contextOf(ctx context.Context, state *callState) *Context {
	kept := state.call.State
	if kept == nil {
		kept = map[string]any{}
	}
	return &Context{Context: ctx, Call: state.call, State: kept, state: state, numbers: map[string]int{}}
}

func failure(err error) []reply {
	var pause *Pause
	if errors.As(err, &pause) {
		return []reply{replyOf("pause", pause)}
	}
	var refused *Error
	if !errors.As(err, &refused) {
		refused = Refuse(err.Error())
	}
	return []reply{replyOf("failure", refused)}
}

// remember keeps the last thousand calls that have ended.
func (s *Served) remember(key callKey) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.finished = append(s.finished, key)
	if len(s.finished) > maxFinished {
		delete(s.calls, s.finished[0])
		s.finished = s.finished[1:]
	}
}

func (s *Served) onStatus(message *nats.Msg) {
	if state := s.callOf(message); state != nil && message.Reply != "" {
		state.join(message.Reply)
	}
}

func (s *Served) onCancel(message *nats.Msg) {
	if state := s.callOf(message); state != nil {
		state.cancel(&Error{Reason: "the call was cancelled", Code: "cancelled"})
	}
}

func (s *Served) callOf(message *nats.Msg) *callState {
	var request callKey
	if json.Unmarshal(message.Data, &request) != nil {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.calls[request]
}
