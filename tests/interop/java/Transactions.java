import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions, requests and replies by the unmodified Java client; tests read what it prints. */
public class Transactions {
    public static void main(String[] args) throws Exception {
        String mode = args[0], namesrv = args[1], topic = args[2];
        int count = Integer.parseInt(args[3]);
        switch (mode) {
            case "transact" -> transact(namesrv, topic, count, Integer.parseInt(args[4]));
            case "finish" -> finish(namesrv, count);
            case "converse" -> converse(namesrv, topic, count);
            default -> throw new IllegalArgumentException(mode);
        }
        System.out.println("END");
    }

    /** Of six in a row: commit, roll back, and four that are left open. */
    static LocalTransactionState atOnce(int number) {
        return number % 6 == 0 ? LocalTransactionState.COMMIT_MESSAGE
            : number % 6 == 1 ? LocalTransactionState.ROLLBACK_MESSAGE
            : LocalTransactionState.UNKNOW;
    }

    /** When asked: even ones are committed, odd ones rolled back. */
    static LocalTransactionState whenAsked(MessageExt message) {
        return Integer.parseInt(message.getUserProperty("n")) % 2 == 0
            ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    /** Counts each open one once: a killed broker may ask again about one that has ended. */
    static TransactionMQProducer producer(String namesrv, CountDownLatch left) throws Exception {
        Set<Integer> asked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = new TransactionMQProducer("JavaTransactions");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(30_000);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return atOnce((Integer) number);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                LocalTransactionState state = left == null ? LocalTransactionState.UNKNOW : whenAsked(message);
                System.out.println("ASKED " + message.getUserProperty("n") + " " + message.getTopic() + " "
                    + message.getQueueId() + " " + message.getTransactionId() + " " + state);
                int number = Integer.parseInt(message.getUserProperty("n"));
                if (left != null && atOnce(number) == LocalTransactionState.UNKNOW && asked.add(number)) {
                    left.countDown();
                }
                return state;
            }
        });
        producer.start();
        return producer;
    }

    static void transact(String namesrv, String topic, int count, int asked) throws Exception {
        CountDownLatch left = asked == 0 ? null : new CountDownLatch(asked);
        TransactionMQProducer producer = producer(namesrv, left);
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "tx", "k" + i, ("half " + i).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("n", String.valueOf(i));
            TransactionSendResult result = producer.sendMessageInTransaction(message, i);
            System.out.println("SENT " + result.getSendStatus() + " " + result.getLocalTransactionState() + " "
                + result.getTransactionId());
        }
        if (left != null && !left.await(60, TimeUnit.SECONDS)) {
            System.out.println("MISSING " + left.getCount());
        }
        Thread.sleep(1_000);
        producer.shutdown();
    }

    static void finish(String namesrv, int count) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        TransactionMQProducer producer = producer(namesrv, left);
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(producer);
        // A broker that has just started may not be at the name server yet: it is heard of when it is.
        for (int tries = 0; client.getTopicRouteTable().get("TransactionsHands") == null && tries < 600; tries++) {
            client.updateTopicRouteInfoFromNameServer("TransactionsHands");
            Thread.sleep(100);
        }
        client.sendHeartbeatToAllBrokerWithLock();
        if (!left.await(60, TimeUnit.SECONDS)) {
            System.out.println("MISSING " + left.getCount());
        }
        Thread.sleep(1_000);
        producer.shutdown();
    }

    static void converse(String namesrv, String topic, int count) throws Exception {
        DefaultMQProducer asker = new DefaultMQProducer("JavaAskers");
        DefaultMQProducer replier = new DefaultMQProducer("JavaRepliers");
        for (DefaultMQProducer producer : new DefaultMQProducer[] {asker, replier}) {
            producer.setNamesrvAddr(namesrv);
            producer.setMqClientApiTimeout(30_000);
            producer.setInstanceName(producer.getProducerGroup());
            producer.setSendMsgTimeout(10_000);
            producer.start();
        }
        asker.send(new Message(topic, "first".getBytes(StandardCharsets.UTF_8)));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("JavaAnswers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (body.equals("first")) {
                    continue;
                }
                try {
                    Message reply = MessageUtil.createReplyMessage(
                        message, ("re: " + body).getBytes(StandardCharsets.UTF_8));
                    System.out.println("REPLIED " + replier.send(reply).getSendStatus());
                } catch (Exception error) {
                    System.out.println("MISSING " + error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int i = 0; i < count; i++) {
            Message answer = asker.request(
                new Message(topic, ("question " + i).getBytes(StandardCharsets.UTF_8)), 60_000);
            System.out.println("GOT " + new String(answer.getBody(), StandardCharsets.UTF_8));
        }
        Thread.sleep(1_000); // the last reply is answered after it has reached the asker
        consumer.shutdown();
        asker.shutdown();
        replier.shutdown();
    }
}
