// One small program around the unmodified Go client; the tests read its SENT and GOT lines.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// What signs the requests, from the environment; none where nothing is set.
var keys = primitive.Credentials{AccessKey: os.Getenv("ROCKETMQ_ACCESS_KEY"), SecretKey: os.Getenv("ROCKETMQ_SECRET_KEY")}

func main() {
	rlog.SetLogLevel("error")
	mode, namesrv, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	must(err)
	switch mode {
	case "send", "send-ordered", "send-delayed":
		send(mode, namesrv, topic, group, count)
	case "send-transactions":
		sendTransactions(namesrv, topic, group)
	case "consume":
		consume(namesrv, topic, group, count, false)
	case "consume-ordered":
		consume(namesrv, topic, group, count, true)
	default:
		must(fmt.Errorf("unknown mode %s", mode))
	}
	fmt.Println("END")
}

func send(mode, namesrv, topic, group string, count int) {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithGroupName(group),
		producer.WithCredentials(keys),
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
	)
	must(err)
	must(p.Start())
	for i := 0; i < count; i++ {
		message := primitive.NewMessage(topic, []byte("go "+strconv.Itoa(i))).WithTag("go").WithKeys([]string{"g" + strconv.Itoa(i)})
		if mode == "send-ordered" {
			message.WithShardingKey("key-" + strconv.Itoa(i%5))
		}
		if mode == "send-delayed" {
			message.WithDelayTimeLevel(1)
		}
		result, err := p.SendSync(context.Background(), message)
		must(err)
		fmt.Println("SENT", int(result.Status), result.MsgID, result.MessageQueue.QueueId, result.QueueOffset)
	}
	must(p.Shutdown())
}

// Commits the first half message, rolls the second back, and says of the third what it is when asked.
type listener struct{ checked chan string }

func (l *listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "go committed":
		return primitive.CommitMessageState
	case "go rolled back":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (l *listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	select {
	case l.checked <- string(message.Body):
	default:
	}
	return primitive.CommitMessageState
}

func sendTransactions(namesrv, topic, group string) {
	asked := &listener{make(chan string, 1)}
	p, err := rocketmq.NewTransactionProducer(asked, producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group), producer.WithCredentials(keys))
	must(err)
	must(p.Start())
	for _, body := range []string{"go committed", "go rolled back", "go asked about"} {
		result, err := p.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body)))
		must(err)
		fmt.Println("SENT", int(result.Status), result.State)
	}
	select {
	case body := <-asked.checked:
		fmt.Println("CHECKED", body)
	case <-time.After(60 * time.Second):
		must(fmt.Errorf("the broker never asked"))
	}
	time.Sleep(time.Second)
	must(p.Shutdown())
}

func consume(namesrv, topic, group string, count int, orderly bool) {
	got := make(chan *primitive.MessageExt, count+1000)
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithCredentials(keys),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(orderly),
	)
	must(err)
	must(c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			got <- message
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(c.Start())
	deadline := time.After(90 * time.Second)
	for i := 0; i < count; i++ {
		select {
		case message := <-got:
			fmt.Println("GOT", message.Queue.QueueId, message.QueueOffset, message.ReconsumeTimes, message.GetTags(), message.StoreTimestamp-message.BornTimestamp, string(message.Body))
		case <-deadline:
			must(fmt.Errorf("only %d of %d messages came", i, count))
		}
	}
	must(c.Shutdown())
}
