// Sends and consumes with the Go client, and prints what it saw as one line of JSON.
// Usage: roundtrip NAMESRV BROKER TOPIC GROUP [ACCESS_KEY SECRET_KEY]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type received struct {
	Body  string `json:"body"`
	Tags  string `json:"tags"`
	Keys  string `json:"keys"`
	Shade string `json:"shade"`
}

type report struct {
	Sent     []string   `json:"sent"`
	Batch    string     `json:"batch"`
	Received []received `json:"received"`
	Ordered  []string   `json:"ordered"`
}

func main() {
	names, broker, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	account := primitive.Credentials{}
	if len(os.Args) > 6 {
		account = primitive.Credentials{AccessKey: os.Args[5], SecretKey: os.Args[6]}
	}
	rlog.SetLogLevel("error")
	if account.IsEmpty() { // the library's admin client signs nothing, even if it is given an account
		createTopic(names, broker, topic)
		createTopic(names, broker, topic+"_ordered")
	}
	result := report{}

	var guard sync.Mutex
	bodies := map[string]bool{}
	first := func(m *primitive.MessageExt) bool { // delivery is at least once: a repeated message counts once
		again := bodies[string(m.Body)]
		bodies[string(m.Body)] = true
		return !again
	}
	push := start(rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{names})),
		consumer.WithGroupName(group), consumer.WithInstance("go-push"), consumer.WithCredentials(account),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)))
	red := consumer.MessageSelector{Type: consumer.TAG, Expression: "red || green"}
	check(push.Subscribe(topic, red, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		guard.Lock()
		defer guard.Unlock()
		for _, m := range messages {
			if first(m) {
				result.Received = append(result.Received, received{string(m.Body), m.GetTags(), m.GetKeys(), m.GetProperty("shade")})
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(push.Start())

	orderly := start(rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{names})),
		consumer.WithGroupName(group+"_ordered"), consumer.WithInstance("go-orderly"), consumer.WithConsumerOrder(true),
		consumer.WithCredentials(account),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)))
	all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	check(orderly.Subscribe(topic+"_ordered", all, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		guard.Lock()
		defer guard.Unlock()
		for _, m := range messages {
			if first(m) {
				result.Ordered = append(result.Ordered, string(m.Body))
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(orderly.Start())

	sender := start(rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{names})),
		producer.WithGroupName("P_"+group), producer.WithInstanceName("go-producer"), producer.WithSendMsgTimeout(30*time.Second),
		producer.WithCredentials(account),
		producer.WithQueueSelector(producer.NewHashQueueSelector())))
	check(sender.Start())
	for i, tag := range []string{"red", "blue", "green", "red", "blue"} {
		m := message(topic, fmt.Sprintf("go-%d", i), tag)
		m.WithKeys([]string{fmt.Sprintf("go-key-%d", i)})
		m.WithProperty("shade", "dark")
		sent, err := sender.SendSync(context.Background(), m)
		check(err)
		result.Sent = append(result.Sent, fmt.Sprint(sent.Status))
	}
	batch, err := sender.SendSync(context.Background(), message(topic, "go-batch-0", "red"), message(topic, "go-batch-1", "green"))
	check(err)
	result.Batch = fmt.Sprint(batch.Status)
	check(sender.SendOneWay(context.Background(), message(topic, "go-oneway", "green")))
	for i := 0; i < 5; i++ {
		m := message(topic+"_ordered", fmt.Sprintf("step-%d", i), "")
		m.WithShardingKey("one order")
		_, err := sender.SendSync(context.Background(), m)
		check(err)
	}

	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		guard.Lock()
		done := len(result.Received) >= 6 && len(result.Ordered) >= 5
		guard.Unlock()
		if done {
			break
		}
	}
	time.Sleep(300 * time.Millisecond) // for messages that must not come
	guard.Lock()
	defer guard.Unlock()
	line, err := json.Marshal(result)
	check(err)
	fmt.Println(string(line))
	check(sender.Shutdown())
	check(push.Shutdown())
	check(orderly.Shutdown())
}

func message(topic, body, tag string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body))
	if tag != "" {
		m.WithTag(tag)
	}
	return m
}

func createTopic(names, broker, topic string) {
	client, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{names})))
	check(err)
	check(client.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(broker)))
	check(client.Close())
}

func start[T any](client T, err error) T {
	check(err)
	return client
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
