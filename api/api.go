// Package api has the bodies that clients of the REST API send and get, as JSON. Their doc, enum and other tags make
// the OpenAPI document. Package gateway answers them; package client sends them.
package api
