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

func main() {
	rlog.SetLogLevel("error")
	mode, namesrv, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	must(err)
	switch mode {
	case "send":
		send(namesrv, topic, group, count)
	case "consume":
		consume(namesrv, topic, group, count, false)
	case "consume-ordered":
		consume(namesrv, topic, group, count, true)
	default:
		must(fmt.Errorf("unknown mode %s", mode))
	}
	fmt.Println("END")
}

func send(namesrv, topic, group string, count int) {
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group))
	must(err)
	must(p.Start())
	for i := 0; i < count; i++ {
		message := primitive.NewMessage(topic, []byte("go "+strconv.Itoa(i))).WithTag("go").WithKeys([]string{"g" + strconv.Itoa(i)})
		result, err := p.SendSync(context.Background(), message)
		must(err)
		fmt.Println("SENT", int(result.Status), result.MsgID, result.MessageQueue.QueueId, result.QueueOffset)
	}
	must(p.Shutdown())
}

func consume(namesrv, topic, group string, count int, orderly bool) {
	got := make(chan *primitive.MessageExt, count+1000)
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
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
			fmt.Println("GOT", message.Queue.QueueId, message.QueueOffset, message.ReconsumeTimes, message.GetTags(), message.GetKeys(), string(message.Body))
		case <-deadline:
			must(fmt.Errorf("only %d of %d messages came", i, count))
		}
	}
	must(c.Shutdown())
}
