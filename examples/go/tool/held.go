package tool

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"
)

// held is one call: who waits for it, what they were shown, and how it ended. Whoever joins is shown all pieces from the start.
type held struct {
	nc     *nats.Conn
	call   Call
	cancel context.CancelCauseFunc

	mutex   sync.Mutex
	waiting []string
	shown   []reply
	ended   []reply
}

func (h *held) join(to string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.ended != nil {
		h.send(to, h.ended)
		return
	}
	h.waiting = append(h.waiting, to)
	h.send(to, append([]reply{beat}, h.shown...))
}

func (h *held) show(one reply) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.ended != nil {
		return
	}
	if one.kind == "artifact_chunk" {
		h.shown = append(h.shown, one)
	}
	for _, to := range h.waiting {
		h.send(to, []reply{one})
	}
}

func (h *held) end(replies []reply) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.ended, h.shown = replies, nil
	for _, to := range h.waiting {
		h.send(to, replies)
	}
	h.waiting = nil
}

// send tells one who waits. While the connection is away nothing is sent late: whoever waits asks again.
func (h *held) send(to string, replies []reply) {
	for _, one := range replies {
		_ = h.nc.PublishMsg(one.message(to))
	}
}

// Context is what a tool's function is told, and how it shows what it does. It is done when nobody waits for the result any more.
type Context struct {
	context.Context
	Call    Call
	held    *held
	numbers map[string]int
}

// Progress shows how far the work is: a text for people, a fraction from 0 to 1.
func (c *Context) Progress(message string, fraction float64) {
	c.held.show(replyOf("progress", map[string]any{"message": message, "fraction": fraction}))
}

// Artifact shows a piece of an artifact while it grows: any JSON value up to 128 KiB. To be called by one goroutine.
func (c *Context) Artifact(streamID, kind string, chunk any, done bool) {
	seq := c.numbers[streamID]
	c.numbers[streamID] = seq + 1
	c.held.show(replyOf("artifact_chunk", map[string]any{
		"stream_id": streamID, "seq": seq, "chunk": chunk, "done": done, "artifact_type": kind,
	}))
}

// Bind reads the call's arguments into a struct. They have been checked against the input schema; an Error says what else is wrong.
func (c *Context) Bind(into any) error {
	if err := json.Unmarshal(c.Call.Args, into); err != nil {
		return &Error{Reason: err.Error(), Code: "invalid_args"}
	}
	return nil
}
