package web_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/web"
)

// Mount the dashboard and the API below a path of your own server, behind your own login.
func ExampleNew() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	c, err := client.New(context.Background(), nc)
	if err != nil {
		log.Fatal(err)
	}
	h := web.New(c, web.WithUser(func(r *http.Request) string {
		user, _, _ := r.BasicAuth()
		return user
	}))
	defer h.Close()
	mux := http.NewServeMux()
	mux.Handle("/cronce/", http.StripPrefix("/cronce", loggedIn(h)))
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: mux}
	server.RegisterOnShutdown(h.Close)
	fmt.Println(server.ListenAndServe())
}

func loggedIn(next http.Handler) http.Handler { return next }
