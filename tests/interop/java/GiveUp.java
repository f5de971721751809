// A group of the Java client that refuses every message of a topic, until all are dead letters.
// Arguments: name server, topic, group, how many messages, "orderly" or "concurrently".
// Prints "GOT queue offset failures body" per call, then END.

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class GiveUp {
    public static void main(String[] args) throws Exception {
        String namesrv = args[0], topic = args[1], group = args[2];
        int count = Integer.parseInt(args[3]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(1);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.subscribe(topic, "*");
        if (args[4].equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                print(messages);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                print(messages);
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        waitForLetters(namesrv, group, count);
        consumer.shutdown();
        System.out.println("END");
    }

    static synchronized void print(List<MessageExt> messages) {
        for (MessageExt each : messages) {
            System.out.println("GOT " + each.getQueueId() + " " + each.getQueueOffset() + " "
                + each.getReconsumeTimes() + " " + new String(each.getBody(), StandardCharsets.UTF_8));
        }
    }

    static void waitForLetters(String namesrv, String group, int count) throws Exception {
        DefaultMQProducer asker = new DefaultMQProducer(group + "-asker");
        asker.setNamesrvAddr(namesrv);
        asker.setMqClientApiTimeout(30_000);
        asker.start();
        long found = 0, until = System.currentTimeMillis() + 120_000;
        while (found < count && System.currentTimeMillis() < until) {
            Thread.sleep(100);
            try {
                found = 0;
                for (MessageQueue queue : asker.fetchPublishMessageQueues("%DLQ%" + group)) {
                    found += asker.maxOffset(queue);
                }
            } catch (MQClientException problem) {
                found = 0; // the topic comes with the first letter
            }
        }
        asker.shutdown();
        if (found < count) {
            System.out.println("MISSING " + (count - found));
        }
    }
}
