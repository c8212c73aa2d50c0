package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Work is a tool's function. It may take its time; it ends early when the context is done.
type Work func(*Context) (any, error)

const (
	beatEvery   = 500 * time.Millisecond
	maxFinished = 1000
)

// promisedS is twice the pause between beats, so that one late beat is no alarm.
const promisedS = 2 * float64(beatEvery) / float64(time.Second)

var beat = replyOf("heartbeat", map[string]float64{"every_s": promisedS})

// Served is a tool on the bus.
//
// Calls run at the same time, each in a goroutine: endpoints of the micro package take one call at a time, and how many there are over
// all copies is bounded by whoever sends them. The function runs once per idempotency key: a repeated request or a question on .status
// joins the call in flight, and a call that has ended is answered again, never done again.
type Served struct {
	nc        *nats.Conn
	spec      Spec
	work      Work
	service   micro.Service
	questions []*nats.Subscription
	running   sync.WaitGroup

	mutex    sync.Mutex
	calls    map[string]*held
	finished []string
}

// Serve takes calls on tool.<name> and makes the tool known as a NATS micro service whose metadata is its specification.
func Serve(nc *nats.Conn, spec Spec, work Work) (*Served, error) {
	spec.HeartbeatS = promisedS
	s := &Served{nc: nc, spec: spec, work: work, calls: map[string]*held{}}
	described, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	subject := "tool." + spec.Name
	// Every copy hears a question; the one that holds the call answers, the others stay silent.
	for suffix, answer := range map[string]nats.MsgHandler{".status": s.onStatus, ".cancel": s.onCancel} {
		question, err := nc.Subscribe(subject+suffix, answer)
		if err != nil {
			return nil, err
		}
		s.questions = append(s.questions, question)
	}
	s.service, err = micro.AddService(nc, micro.Config{Name: spec.Name, Version: "1.0.0", Description: spec.Description})
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
	return s, nc.Flush()
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
	for _, question := range s.questions {
		err = errors.Join(err, question.Unsubscribe())
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
	known := s.calls[call.IdempotencyKey]
	if known == nil && !tooLate(call) {
		known = s.start(call)
	}
	s.mutex.Unlock()
	if known == nil {
		late := replyOf("failure", &Error{Reason: "the call came too late and was not started", Code: "deadline_passed", Retryable: true})
		_ = s.nc.PublishMsg(late.message(request.Reply()))
		return
	}
	known.join(request.Reply())
}

// tooLate: a process that was stopped finds old requests in its socket when it wakes up, and their callers have gone on.
func tooLate(call Call) bool {
	now := time.Now().UnixMilli()
	return now > call.DeadlineAt || call.StartBy != nil && now > *call.StartBy
}

func (s *Served) start(call Call) *held {
	ctx, cancel := context.WithCancelCause(context.Background())
	ctx, release := context.WithDeadlineCause(ctx, time.UnixMilli(call.DeadlineAt), &Error{Reason: "the call's deadline passed", Code: "deadline_passed"})
	h := &held{nc: s.nc, call: call, cancel: cancel}
	s.calls[call.IdempotencyKey] = h
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer release()
		defer cancel(nil)
		h.end(s.settle(ctx, h))
		s.remember(call.IdempotencyKey)
	}()
	return h
}

// settle runs the function and returns what ends the call. A function that does not hear is left behind.
func (s *Served) settle(ctx context.Context, h *held) []reply {
	outcome := make(chan []reply, 1)
	go func() { outcome <- s.run(&Context{Context: ctx, Call: h.call, held: h, numbers: map[string]int{}}) }()
	beating := time.NewTicker(beatEvery)
	defer beating.Stop()
	for {
		select {
		case replies := <-outcome:
			return replies
		case <-ctx.Done():
			return failure(context.Cause(ctx))
		case <-beating.C:
			h.show(beat)
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

func failure(err error) []reply {
	var refused *Error
	if !errors.As(err, &refused) {
		refused = Refuse(err.Error())
	}
	return []reply{replyOf("failure", refused)}
}

// remember keeps the last thousand calls that have ended.
func (s *Served) remember(key string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.finished = append(s.finished, key)
	if len(s.finished) > maxFinished {
		delete(s.calls, s.finished[0])
		s.finished = s.finished[1:]
	}
}

func (s *Served) onStatus(message *nats.Msg) {
	if h := s.asked(message); h != nil && message.Reply != "" {
		h.join(message.Reply)
	}
}

func (s *Served) onCancel(message *nats.Msg) {
	if h := s.asked(message); h != nil {
		h.cancel(&Error{Reason: "the call was cancelled", Code: "cancelled"})
	}
}

func (s *Served) asked(message *nats.Msg) *held {
	var question struct {
		IdempotencyKey string `json:"idempotency_key"`
	}
	if json.Unmarshal(message.Data, &question) != nil {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.calls[question.IdempotencyKey]
}
