import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Groups that start amid the first sends to their topics PREFIX0, PREFIX1, ...; says what each misses. */
public class NewGroups {
    static final int SENDS = 40, PAUSE_MS = 20;

    public static void main(String[] args) throws Exception {
        String namesrv = args[0], prefix = args[1];
        int groups = Integer.parseInt(args[2]);
        DefaultMQProducer producer = new DefaultMQProducer("NewGroupsProducer");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(30_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        for (int i = 0; i < groups; i++) {
            producer.fetchPublishMessageQueues(prefix + i); // its route: later sends go out at once
        }
        CountDownLatch[] left = new CountDownLatch[groups];
        Thread[] threads = new Thread[groups];
        for (int i = 0; i < groups; i++) {
            int number = i;
            left[i] = new CountDownLatch(SENDS);
            threads[i] = new Thread(() -> startAmidSends(producer, namesrv, prefix + number, left[number]));
            threads[i].start();
        }
        for (int i = 0; i < groups; i++) {
            threads[i].join();
        }
        for (int i = 0; i < groups; i++) {
            if (!left[i].await(40, TimeUnit.SECONDS)) { // two rounds of rebalance
                System.out.println("MISSING " + prefix + i + " " + left[i].getCount());
            }
        }
        System.out.println("END");
    }

    static void startAmidSends(DefaultMQProducer producer, String namesrv, String topic, CountDownLatch left) {
        try {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("group-" + topic);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(topic);
            consumer.setMqClientApiTimeout(30_000);
            consumer.setConsumeThreadMin(1);
            consumer.setConsumeThreadMax(1);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> left.countDown());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            Thread starter = new Thread(() -> start(consumer));
            starter.start();
            for (int n = 0; n < SENDS; n++) {
                TimeUnit.MILLISECONDS.sleep(PAUSE_MS);
                producer.send(new Message(topic, new byte[] {(byte) n}));
            }
            starter.join();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    static void start(DefaultMQPushConsumer consumer) {
        try {
            consumer.start();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }
}
