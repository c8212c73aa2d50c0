// Package runwire serves functions as tools of Runwire, over NATS. Package runs follows runs.
//
// protocol.go holds the words between tool_runner and a tool. contracts/schemas has them as JSON Schema; a test compares both.
package runwire

import (
	"encoding/json"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Version is that of this library.
const Version = "0.1.0"

// Spec is what a tool says about itself.
type Spec struct {
	Version      string          `json:"-"` // of the tool, by SemVer: the highest that is served is used; 1.0.0 unless set
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"` // Serve makes both of types
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Idempotent   bool            `json:"idempotent"`             // a call may be repeated under the same idempotency key
	SideEffects  string          `json:"side_effects,omitempty"` // none, read, write, external
	TimeoutS     float64         `json:"timeout_s,omitempty"`    // the longest silence; every reply restarts it
	HeartbeatS   float64         `json:"heartbeat_s,omitempty"`  // every call shows itself at least so often; filled in by Serve
	Concurrency  int             `json:"concurrency,omitempty"`  // calls at once over all instances
	Tags         []string        `json:"tags,omitempty"`
}

// Call is a request on tool.<name>.
type Call struct {
	CallID         string          `json:"call_id"`
	RunID          string          `json:"run_id"`
	Tenant         string          `json:"tenant"`
	Tool           string          `json:"tool"`
	Args           json.RawMessage `json:"args"`
	IdempotencyKey string          `json:"idempotency_key"`    // the same on every repetition of this call
	DeadlineAt     int64           `json:"deadline_at"`        // Unix ms at which the call ends
	StartBy        *int64          `json:"start_by,omitempty"` // Unix ms after which it may not start
	SentAt         *int64          `json:"sent_at,omitempty"`  // Unix ms when it was sent; these three are by the clock of the caller
	Context        map[string]any  `json:"context,omitempty"`  // the caller's tool_context; the model never sees it
	Round          int             `json:"round"`              // how many pauses the call has had
	Answers        []Answer        `json:"answers"`            // to those pauses
	State          map[string]any  `json:"state"`              // what the last pause kept

	UnderstandsPause    bool `json:"understands_pause"`    // the caller accepts the reply `pause`
	UnderstandsDeclined bool `json:"understands_declined"` // the caller sends the call again after the reply `declined`
}

// Answer is what a person decided about a pause: answer, approve or reject.
type Answer struct {
	Decision string          `json:"decision"`
	Input    json.RawMessage `json:"input"`
	Note     string          `json:"note"`
}

// Question is what a tool asks a person.
type Question struct {
	Title       string          `json:"title"`
	Payload     any             `json:"payload,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"` // of the answer
}

// Pause ends a round of a call. A function returns it as it gets it from Context.Pause.
type Pause struct {
	Question
	Number int            `json:"number"`
	State  map[string]any `json:"state"`
}

func (p *Pause) Error() string { return "waits for a person: " + p.Title }

// Error ends a call without a result. The model reads the reason, so it says what to do differently.
type Error struct {
	Reason    string `json:"reason"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

func (e *Error) Error() string { return e.Reason }

// Refuse is the usual Error: the tool cannot do what was requested.
func Refuse(reason string) *Error { return &Error{Reason: reason, Code: "tool_error"} }

const partBytes = 1 << 20

type reply struct {
	kind  string
	body  []byte
	parts int // of a result that went in parts: how many
}

func replyOf(kind string, body any) reply {
	encoded, err := json.Marshal(body)
	if err != nil {
		encoded, _ = json.Marshal(&Error{Reason: "the tool returned what is no JSON: " + err.Error(), Code: "invalid_result"})
		kind = "failure"
	}
	return reply{kind: kind, body: encoded}
}

// resultReplies splits a result above 1 MB into parts of raw bytes and an empty result that counts them.
func resultReplies(value any) []reply {
	whole := replyOf("result", value)
	if len(whole.body) <= partBytes {
		return []reply{whole}
	}
	var replies []reply
	for start := 0; start < len(whole.body); start += partBytes {
		replies = append(replies, reply{kind: "part", body: whole.body[start:min(start+partBytes, len(whole.body))]})
	}
	return append(replies, reply{kind: "result", parts: len(replies)})
}

func (r reply) message(to string) *nats.Msg {
	message := &nats.Msg{Subject: to, Data: r.body, Header: nats.Header{"Runwire-Reply": {r.kind}}}
	if r.parts > 0 {
		message.Header.Set("Runwire-Parts", strconv.Itoa(r.parts))
	}
	return message
}
