import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads topics from beginning to end, message by message and again by key, and appends to one of them.
 * Usage: StoreRead NAMESRV BROKER PENDING TOPIC ...; PENDING is how many messages T_delay shall have before it is read.
 */
public final class StoreRead {
    public static void main(String[] args) throws Exception {
        try (Bench bench = new Bench(args[0], args[1], "store")) {
            DefaultMQProducer producer = bench.producer();
            int pending = Integer.parseInt(args[2]);
            Bench.await(() -> {
                Set<String> ids = new HashSet<>(); // after a kill, one may have come twice
                bench.readAll("T_delay").forEach(message -> ids.add(message.getMsgId()));
                return ids.size() >= pending;
            });
            long deadline = Bench.deadline(); // one for all, since a lost index has lost many
            for (int i = 3; i < args.length; i++) {
                for (MessageExt message : bench.readAll(args[i])) {
                    System.out.println(Json.line(Bench.facts("topic", args[i], "msgId", message.getMsgId(),
                        "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(),
                        "body", digest(message.getBody()), "keys", message.getKeys(),
                        "byKey", byKey(producer, message, deadline))));
                }
            }
            DefaultMQPullConsumer consumer = bench.pullConsumer();
            MessageQueue queue = new MessageQueue("T_plain", "broker-a", 2);
            long offset = consumer.fetchConsumeOffset(queue, true);
            long before = producer.maxOffset(queue);
            SendResult more = producer.send(Bench.message("T_plain", "t", "more", "one more"), queue);
            MessageExt last = consumer.pullBlockIfNotFound(queue, "*", before, 1).getMsgFoundList().get(0);
            System.out.println(Json.line(Bench.facts("done", true, "group offset", offset, "before", before,
                "appended at", more.getQueueOffset(), "last", Bench.text(last.getBody()))));
        }
        System.exit(0);
    }

    /** The ids of the messages with this one's key; the index of a message that came just now follows in a moment. */
    private static List<String> byKey(DefaultMQProducer producer, MessageExt message, long deadline) throws Exception {
        while (true) {
            List<String> ids = new ArrayList<>();
            try {
                long now = System.currentTimeMillis() + 5000;
                for (MessageExt found : producer.queryMessage(message.getTopic(), message.getKeys(), 8, 0, now).getMessageList()) {
                    ids.add(found.getMsgId());
                }
            } catch (MQClientException e) {
                ids.add(e.getMessage());
            }
            if (ids.contains(message.getMsgId()) || System.nanoTime() > deadline) {
                return ids;
            }
            Thread.sleep(50);
        }
    }

    static String digest(byte[] body) throws Exception {
        StringBuilder hex = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(body)) {
            hex.append(String.format("%02x", b));
        }
        return hex.substring(0, 24);
    }
}
