package runwire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestALargeResultGoesInParts(t *testing.T) {
	text := strings.Repeat("ä", 1_200_000)
	replies := resultReplies(text)
	var whole bytes.Buffer
	for at, one := range replies {
		whole.Write(one.body)
		if last := at == len(replies)-1; last != (one.kind == "result") || len(one.body) > partBytes {
			t.Errorf("reply %d is a %s of %d bytes", at, one.kind, len(one.body))
		}
	}
	end := replies[len(replies)-1]
	if len(end.body) != 0 || end.parts != 3 || end.message("x").Header.Get("Runwire-Parts") != "3" {
		t.Errorf("the last reply is %+v", end)
	}
	var back string
	if err := json.Unmarshal(whole.Bytes(), &back); err != nil || back != text {
		t.Error("the parts are not the result")
	}
}

func TestASmallResultGoesAtOnce(t *testing.T) {
	replies := resultReplies(map[string]int{"answer": 42})
	if len(replies) != 1 || replies[0].kind != "result" || string(replies[0].body) != `{"answer":42}` {
		t.Errorf("got %+v", replies)
	}
}

func TestWhatIsNoJSONFails(t *testing.T) {
	replies := resultReplies(math.NaN())
	if len(replies) != 1 || replies[0].kind != "failure" || !strings.Contains(string(replies[0].body), "invalid_result") {
		t.Errorf("got %+v", replies)
	}
}

func TestTheNthPauseHasTheNthAnswer(t *testing.T) {
	answers := []Answer{{Decision: "answer", Input: json.RawMessage(`"7A"`)}, {Decision: "reject", Note: "too late"}}
	ask := func(answered int, understood bool) (seat string, err error) {
		call := Call{Answers: answers[:answered], UnderstandsPause: understood}
		ctx := contextOf(context.Background(), &callState{call: call})
		ctx.State["offer"] = 3
		if err := ctx.Pause(Question{Title: "Which seat?"}, &seat); err != nil {
			return "", err
		}
		return seat, ctx.Pause(Question{Title: "Book it?"}, new(any))
	}
	for answered, number := range []int{0, 1} {
		var pause *Pause
		if _, err := ask(answered, true); !errors.As(err, &pause) || pause.Number != number || pause.State["offer"] != 3 {
			t.Errorf("with %d answers: %v", answered, err)
		}
	}
	var refused *Error
	if seat, err := ask(2, true); seat != "7A" || !errors.As(err, &refused) || refused.Code != "rejected" {
		t.Errorf("got %q, %v", seat, err)
	}
	if _, err := ask(0, false); !errors.As(err, &refused) || refused.Code != "pause_unsupported" {
		t.Errorf("got %v", err)
	}
}
