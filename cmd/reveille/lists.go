package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// members splits a setting that is a list. It trims the members. None may be empty.
func members(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	all := strings.Split(text, ",")
	for i, m := range all {
		if all[i] = strings.TrimSpace(m); all[i] == "" {
			return nil, fmt.Errorf("member %d is empty", i+1)
		}
	}
	return all, nil
}

// list is a setting of the form a,b,….
type list []string

// Decode implements envconfig.Decoder.
func (l *list) Decode(text string) (err error) {
	*l, err = members(text)
	return err
}

// prefixes is a list of address ranges.
type prefixes []netip.Prefix

// Decode implements envconfig.Decoder.
func (p *prefixes) Decode(text string) error {
	all, err := members(text)
	if err != nil {
		return err
	}
	*p = nil
	for _, m := range all {
		r, err := netip.ParsePrefix(m)
		if err != nil {
			return fmt.Errorf("not an address range: %w", err)
		}
		*p = append(*p, r)
	}
	return nil
}

// headers is a setting of the form Name=value,….
type headers http.Header

// Decode implements envconfig.Decoder.
func (h *headers) Decode(text string) error {
	*h = headers{}
	all, err := members(text)
	if err != nil {
		return err
	}
	for _, pair := range all {
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return errors.New("not Name=value")
		}
		http.Header(*h).Add(name, strings.TrimSpace(value))
	}
	return nil
}
