package runwire

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"
)

// callState is one call: the subjects that wait for its replies, the pieces sent so far, and how it ended. A subject that joins gets
// all pieces from the start.
type callState struct {
	nc     *nats.Conn
	call   Call
	cancel context.CancelCauseFunc

	mutex   sync.Mutex
	waiting []string
	pieces  []reply
	ended   []reply
}

func (s *callState) join(to string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended != nil {
		s.sendTo(to, s.ended)
		return
	}
	s.waiting = append(s.waiting, to)
	s.sendTo(to, append([]reply{heartbeat}, s.pieces...))
}

func (s *callState) send(one reply) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended != nil {
		return
	}
	if one.kind == "artifact_chunk" {
		s.pieces = append(s.pieces, one)
	}
	for _, to := range s.waiting {
		s.sendTo(to, []reply{one})
	}
}

func (s *callState) end(replies []reply) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ended, s.pieces = replies, nil
	for _, to := range s.waiting {
		s.sendTo(to, replies)
	}
	s.waiting = nil
}

// sendTo sends replies to one subject. While there is no connection they are lost, not sent late: the caller repeats its request.
func (s *callState) sendTo(to string, replies []reply) {
	for _, one := range replies {
		_ = s.nc.PublishMsg(one.message(to))
	}
}

// Context is what a tool's function receives, and how it reports what it does. It is done when the call was cancelled or its deadline passed.
type Context struct {
	context.Context
	Call    Call
	State   map[string]any // what is kept from pause to pause, up to 32 KiB as JSON
	state   *callState
	numbers map[string]int
	pauses  int
}

// Pause asks a person and reads the answer. Without an answer yet it returns a Pause, which the function returns at once. When there is
// one, the function runs again from its beginning, and its n-th Pause has the n-th answer.
func (c *Context) Pause(question Question, into any) error {
	number := c.pauses
	c.pauses++
	switch {
	case number >= len(c.Call.Answers) && !c.Call.UnderstandsPause:
		return &Error{Reason: "this tool asks a person, and its caller cannot wait for the answer", Code: "pause_unsupported"}
	case number >= len(c.Call.Answers):
		return &Pause{Question: question, Number: number, State: c.State}
	case c.Call.Answers[number].Decision == "reject":
		return &Error{Reason: "a person said no: " + c.Call.Answers[number].Note, Code: "rejected"}
	}
	return json.Unmarshal(c.Call.Answers[number].Input, into)
}

// Progress reports how far the work is: a text for people, a fraction from 0 to 1.
func (c *Context) Progress(message string, fraction float64) {
	c.state.send(replyOf("progress", map[string]any{"message": message, "fraction": fraction}))
}

// Artifact sends a piece of an artifact while it grows: any JSON value up to 128 KiB. To be called by one goroutine.
func (c *Context) Artifact(streamID, kind string, chunk any, done bool) {
	seq := c.numbers[streamID]
	c.numbers[streamID] = seq + 1
	c.state.send(replyOf("artifact_chunk", map[string]any{
		"stream_id": streamID, "seq": seq, "chunk": chunk, "done": done, "artifact_type": kind,
	}))
}
