package runs

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Event is one event of a run. Body is the whole event as JSON, its type included.
type Event struct {
	Kind     string // log or stream
	Sequence uint64
	Type     string
	Body     json.RawMessage
}

func (e Event) isTerminal() bool {
	return e.Type == "done" || e.Type == "error" || e.Type == "cancelled"
}

// record is one stored message: the events of one transition.
type record struct {
	kind     string
	sequence uint64
	previous uint64 // on the same subject; only live messages know it
	events   []Event
}

func (r *record) isTerminal() bool {
	return len(r.events) > 0 && r.events[len(r.events)-1].isTerminal()
}

// read takes a record out of a message of the stream RUNS. An error: it is none, as when somebody writes to the live subject directly. What
// was stored once, read, and published again has the header Nats-Subject twice.
func read(message *nats.Msg) (*record, error) {
	stored := message.Header["Nats-Subject"]
	if len(stored) != 1 {
		return nil, errors.New("no stored record")
	}
	sequence, err := strconv.ParseUint(message.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, err
	}
	previous, _ := strconv.ParseUint(message.Header.Get("Nats-Last-Sequence"), 10, 64)
	one := &record{kind: stored[0][strings.LastIndexByte(stored[0], '.')+1:], sequence: sequence, previous: previous}
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
	}
	return one, nil
}
