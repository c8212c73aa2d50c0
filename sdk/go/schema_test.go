package runwire

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

type base struct {
	ID string `json:"id"`
}

type tree struct {
	base
	Name     string         `json:"name" doc:"of the node" schema:"minLength=1 title=Name"`
	Weight   *float64       `json:"weight"`
	Count    uint           `json:"count,omitempty"`
	At       time.Time      `json:"at"`
	Bytes    []byte         `json:"bytes"`
	Labels   map[string]int `json:"labels"`
	Children []tree         `json:"children"`
	Any      any            `json:"any"`
	Hidden   string         `json:"-"`
	private  string
}

func TestASchemaIsThatOfTheType(t *testing.T) {
	_ = tree{}.private
	want := `{"type": "object", "required": ["id", "name", "at", "bytes", "labels", "children", "any"], "properties": {
		"id": {"type": "string"}, "name": {"type": "string", "description": "of the node", "minLength": 1, "title": "Name"},
		"weight": {"type": "number"}, "count": {"type": "integer", "minimum": 0}, "at": {"type": "string", "format": "date-time"},
		"bytes": {"type": "string", "contentEncoding": "base64"}, "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
		"children": {"type": "array", "items": {"type": "object"}}, "any": {}}}`
	var found, wanted any
	if err := json.Unmarshal(SchemaOf[tree](), &found); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(found, wanted) {
		t.Errorf("got %s", SchemaOf[tree]())
	}
}

func TestTheMessagesAreThoseOfTheContracts(t *testing.T) {
	for name, own := range map[string]json.RawMessage{
		"ToolSpec": SchemaOf[Spec](), "ToolCall": SchemaOf[Call](), "ToolFailure": SchemaOf[Error](),
	} {
		text, err := os.ReadFile("../../contracts/schemas/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var found, contract struct{ Properties map[string]any }
		if json.Unmarshal(own, &found) != nil || json.Unmarshal(text, &contract) != nil || len(contract.Properties) == 0 {
			t.Fatalf("%s: no schema", name)
		}
		for field := range found.Properties {
			if _, known := contract.Properties[field]; !known {
				t.Errorf("%s has no field %s; it has %s", name, field, strings.Join(keysOf(contract.Properties), ", "))
			}
		}
	}
}

func keysOf(of map[string]any) (keys []string) {
	for key := range of {
		keys = append(keys, key)
	}
	return keys
}
