// A client in Go, with the package that openapi-generator makes of the document. It reads all that can be read, changes a
// rate and commits a change.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"

	"gateway"
)

type task struct {
	Reads [][2]string
	Names struct {
		Id       int64
		Revision int64
		Job      int64
		Webhook  string
	}
	Rate string
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// camel makes SubscribersIndex of subscribers_index.
func camel(name string) string {
	words := strings.Split(name, "_")
	for number, word := range words {
		words[number] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

func main() {
	url, username, password, certificate := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	var given task
	check(json.NewDecoder(os.Stdin).Decode(&given))
	pem, err := os.ReadFile(certificate)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)

	configuration := gateway.NewConfiguration()
	configuration.Servers = gateway.ServerConfigurations{{URL: url}}
	configuration.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	client := gateway.NewAPIClient(configuration)
	login := gateway.NewLoginRequest(username, password)
	token, _, err := client.LoginAPI.LoginLogIn(context.Background()).LoginRequest(*login).Execute()
	check(err)
	ctx := context.WithValue(context.Background(), gateway.ContextAccessToken, token.GetAccessToken())

	for _, read := range given.Reads {
		api := reflect.ValueOf(client).Elem().FieldByName(camel(read[1]) + "API")
		call := api.MethodByName(camel(read[0]))
		arguments := []reflect.Value{reflect.ValueOf(ctx)}
		if call.Type().NumIn() > 1 {
			name := map[string]string{
				"configuration_archived": "Revision", "jobs_show": "Job",
				"webhooks_show": "Webhook", "webhooks_deliveries": "Webhook",
			}[read[0]]
			if name == "" {
				name = "Id"
			}
			arguments = append(arguments, reflect.ValueOf(given.Names).FieldByName(name))
		}
		replies := call.Call(arguments)[0].MethodByName("Execute").Call(nil)
		if failure := replies[len(replies)-1]; !failure.IsNil() {
			panic(fmt.Sprint(read[0], ": ", failure.Interface()))
		}
	}

	change := gateway.NewRateChange()
	change.SetRateDown("250 Mbit")
	change.SetRateUp("50mbps")
	changed, _, err := client.SubscribersAPI.SubscribersChangeRate(ctx, given.Names.Id).RateChange(*change).Execute()
	check(err)
	set := gateway.NewSetValue("qos.default_down", given.Rate)
	_, _, err = client.ConfigurationAPI.ConfigurationSetValue(ctx).SetValue(*set).Execute()
	check(err)
	committed, _, err := client.ConfigurationAPI.ConfigurationCommit(ctx).Commit(*gateway.NewCommit()).Execute()
	check(err)
	said, err := json.Marshal(map[string]any{
		"rate_down_bps": changed.Data.GetRateDownBps(), "committed": committed.Data.GetCommitted(),
	})
	check(err)
	os.Stdout.Write(said)
}
