package runs

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// history reads the stored records of a run from the gateway, as Server-Sent Events.
type history struct{ url, key string }

// historyOf takes RUNWIRE_URL and RUNWIRE_API_KEY; nil when neither is set.
func historyOf(run string) *history {
	url, key := os.Getenv("RUNWIRE_URL"), os.Getenv("RUNWIRE_API_KEY")
	if url == "" && key == "" {
		return nil
	}
	return &history{cmp.Or(strings.TrimRight(url, "/"), "http://127.0.0.1:8080") + "/v1/runs/" + run + "/events", key}
}

// read passes the records after the cursors `at`, in order, until one of `kind` reaches a sequence, or the run has ended. `pass` moves the
// cursors. The first result is false when the gateway does not know the run, or does not take the key.
func (h *history) read(ctx context.Context, at map[string]uint64, kind string, sequence uint64, pass func(*record)) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return false, err
	}
	request.Header.Set("Last-Event-ID", fmt.Sprintf("%d-%d", at["log"], at["stream"]))
	if h.key != "" {
		request.Header.Set("Authorization", "Bearer "+h.key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return true, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		refused := response.StatusCode >= 400 && response.StatusCode < 500 && response.StatusCode != http.StatusTooManyRequests
		return !refused, fmt.Errorf("the gateway answers %s", response.Status)
	}
	lines := bufio.NewReader(response.Body)
	events := []Event{} // of the record that is being read; its last event has the id
	event := Event{}
	for at[kind] < sequence {
		line, err := lines.ReadString('\n')
		if err != nil {
			return true, err
		}
		field, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch field {
		case "event":
			event.Type = value
		case "data":
			event.Body = []byte(value)
			events = append(events, event)
		case "id":
			one, err := recordOf(value, at, events)
			if err != nil {
				return true, err
			}
			pass(one)
			events = nil
		}
	}
	return true, nil
}

// recordOf makes a record of the events up to an id, `<log>-<stream>`: the cursors after it. The one that has moved is its own.
func recordOf(id string, at map[string]uint64, events []Event) (*record, error) {
	var log, stream uint64
	if _, err := fmt.Sscanf(id, "%d-%d", &log, &stream); err != nil {
		return nil, fmt.Errorf("the id %q: %w", id, err)
	}
	one := &record{kind: "log", sequence: log, events: events}
	if log == at["log"] {
		one.kind, one.sequence = "stream", stream
	}
	for i := range events {
		events[i].Kind, events[i].Sequence = one.kind, one.sequence
	}
	return one, nil
}
