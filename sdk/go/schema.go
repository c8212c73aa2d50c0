package runwire

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// SchemaOf makes the JSON Schema of a type as encoding/json writes it.
//
// A field is optional if its tag has omitempty or omitzero, or if it is a pointer. The tag `doc` is its description, and the tag `schema`
// has more of its schema: `schema:"minimum=1 artifact=true stream_id=chart"`.
func SchemaOf[T any]() json.RawMessage {
	encoded, err := json.Marshal(schemaOf(reflect.TypeFor[T](), nil))
	if err != nil {
		panic(err) // It is made of texts, numbers, maps and lists.
	}
	return encoded
}

type schema = map[string]any

// schemaOf: `above` are the structs that a type stands in; one that holds itself is any object there.
func schemaOf(of reflect.Type, above []reflect.Type) schema {
	switch of {
	case reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return schema{}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return schemaOf(of.Elem(), above)
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return schema{"type": "integer", "minimum": 0}
	case reflect.Slice, reflect.Array:
		if of.Elem().Kind() == reflect.Uint8 && of.Kind() == reflect.Slice {
			return schema{"type": "string", "contentEncoding": "base64"}
		}
		return schema{"type": "array", "items": schemaOf(of.Elem(), above)}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": schemaOf(of.Elem(), above)}
	case reflect.Struct:
		for _, one := range above {
			if one == of {
				return schema{"type": "object"}
			}
		}
		return schemaOfStruct(of, append(above[:len(above):len(above)], of))
	}
	return schema{}
}

func schemaOfStruct(of reflect.Type, above []reflect.Type) schema {
	properties, required := schema{}, []string{}
	for _, field := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" && options == "" || field.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		found := schemaOf(field.Type, above)
		if text := field.Tag.Get("doc"); text != "" {
			found["description"] = text
		}
		for _, pair := range strings.Fields(field.Tag.Get("schema")) {
			key, text, _ := strings.Cut(pair, "=")
			var value any = text
			if json.Unmarshal([]byte(text), &value) != nil {
				value = text
			}
			found[key] = value
		}
		properties[name] = found
		if !strings.Contains(options, "omit") && field.Type.Kind() != reflect.Pointer {
			required = append(required, name)
		}
	}
	return schema{"type": "object", "properties": properties, "required": required}
}
