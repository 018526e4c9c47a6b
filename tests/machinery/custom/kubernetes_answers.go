// Answers of Kubernetes' own packages about schemas and objects, a JSON document per line: what kubernetes_answers.json is made of.
//
// To renew it: put this file into a folder of its own, `go mod init oracle`, `go get k8s.io/apiextensions-apiserver@v0.37.2`,
// `go mod tidy`, `go build`; send it lines of {"schema": ..., "objects": [...]} of random_schemas.make_case, and write each line with
// its answers, errors sorted, into the file. Leave out what test_schemas.py says, and cases with 2.0, which Go writes as 2.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
)

type Case struct {
	Schema  json.RawMessage   `json:"schema"`
	Objects []json.RawMessage `json:"objects"`
}
type Outcome struct {
	Completed interface{} `json:"completed"`
	Unknown   []string    `json:"unknown"`
	Errors    []string    `json:"errors"`
	Update    []string    `json:"update"` // from the object before
}
type Answer struct {
	Faults  []string  `json:"faults"`
	Objects []Outcome `json:"objects"`
}

func texts(errs field.ErrorList) []string {
	out := []string{}
	for _, e := range errs {
		out = append(out, e.Error())
	}
	sort.Strings(out)
	return out
}

func work(line []byte) (answer Answer) {
	ctx := context.Background()
	var c Case
	if err := json.Unmarshal(line, &c); err != nil {
		panic(err)
	}
	var props v1.JSONSchemaProps
	if err := json.Unmarshal(c.Schema, &props); err != nil {
		answer.Faults = []string{"decode: " + err.Error()}
		return
	}
	var internal apiextensions.JSONSchemaProps
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil); err != nil {
		answer.Faults = []string{"convert: " + err.Error()}
		return
	}
	s, err := structuralschema.NewStructural(&internal)
	if err != nil {
		answer.Faults = []string{"structural: " + err.Error()}
		return
	}
	var crd v1.CustomResourceDefinition
	doc := `{"metadata":{"name":"cases.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"cases","kind":"Case","singular":"case","listKind":"CaseList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + string(c.Schema) + `}}]},"status":{"storedVersions":["v1"]}}`
	if err := json.Unmarshal([]byte(doc), &crd); err != nil {
		panic(err)
	}
	v1.SetDefaults_CustomResourceDefinition(&crd)
	v1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	var icrd apiextensions.CustomResourceDefinition
	if err := v1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &icrd, nil); err != nil {
		panic(err)
	}
	faults := crdvalidation.ValidateCustomResourceDefinition(ctx, &icrd)
	answer.Faults = texts(faults)
	if len(faults) > 0 {
		return
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		answer.Faults = []string{"validator: " + err.Error()}
		return
	}
	if err := defaulting.PruneDefaults(s); err != nil {
		panic(err)
	}
	var before map[string]interface{}
	for _, raw := range c.Objects {
		var obj map[string]interface{}
		if err := utiljson.Unmarshal(raw, &obj); err != nil {
			panic(err)
		}
		out := Outcome{}
		defaulting.Default(obj, s)
		opts := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
		out.Unknown = pruning.PruneWithOptions(obj, s, true, opts)
		defaulting.PruneNonNullableNullsWithoutDefaults(obj, s)
		if e, unknown := objectmeta.CoerceWithOptions(nil, obj, s, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true}); e != nil {
			out.Errors = []string{"coerce: " + e.Error()}
		} else {
			out.Unknown = append(out.Unknown, unknown...)
		}
		out.Completed = obj
		if out.Errors == nil {
			errs := validation.ValidateCustomResource(nil, obj, validator)
			errs = append(errs, objectmeta.Validate(ctx, nil, obj, s, false)...)
			errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s, obj)...)
			out.Errors = texts(errs)
			if before != nil {
				correlated := common.NewCorrelatedObject(obj, before, &model.Structural{Structural: s})
				errs := validation.ValidateCustomResourceUpdate(nil, obj, before, validator, validation.WithRatcheting(correlated))
				errs = append(errs, objectmeta.Validate(ctx, nil, obj, s, false)...)
				if oldErrs := listtype.ValidateListSetsAndMaps(nil, s, before); len(oldErrs) == 0 {
					errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s, obj)...)
				}
				out.Update = texts(errs)
			}
			before = obj
		} else {
			before = nil
		}
		answer.Objects = append(answer.Objects, out)
	}
	return
}

func main() {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(make([]byte, 1<<20), 64<<20)
	w := bufio.NewWriter(os.Stdout)
	defer w.Flush()
	for scanner.Scan() {
		func() {
			defer func() {
				if r := recover(); r != nil {
					b, _ := json.Marshal(Answer{Faults: []string{fmt.Sprint("panic: ", r)}})
					w.Write(b)
					w.WriteByte('\n')
				}
			}()
			b, err := json.Marshal(work(scanner.Bytes()))
			if err != nil {
				panic(err)
			}
			w.Write(b)
			w.WriteByte('\n')
		}()
	}
}
