// Runs mqadmin's own commands, one after the other in one JVM, while a consumer and a producer are online.
// Standard input: one command a line, its words parted by tabs. Standard output: "### n" before each
// command's output; what does not end within 25 s is left to itself.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

public class Admin {
    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String topic = args[1];
        PrintStream out = System.out;
        System.setErr(out);
        DefaultMQProducer producer = new DefaultMQProducer("admin-producers");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        SendResult sent = null;
        for (int i = 0; i < 8; i++) {
            Message message = new Message(topic, "tag" + i % 2, "key" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
            sent = producer.send(message, (queues, m, n) -> queues.get((Integer) n % queues.size()), i);
        }
        CountDownLatch left = new CountDownLatch(8);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("admin-group");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer did not get its messages");
        }
        Thread.sleep(6_000);
        String clientId = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int n = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.replace("{msgId}", sent.getMsgId()).replace("{offsetMsgId}", sent.getOffsetMsgId())
                .replace("{clientId}", clientId).split("\t");
            out.println("\n### " + n);
            out.flush();
            Thread command = new Thread(() -> MQAdminStartup.main0(words, null));
            command.setDaemon(true);
            command.start();
            command.join(25_000);
            if (command.isAlive()) {
                out.println("DID NOT END");
                command.interrupt();
                command.join(1_000);
            }
            out.flush();
            n++;
        }
        out.println("\n### END");
        out.flush();
        System.exit(0);
    }
}
