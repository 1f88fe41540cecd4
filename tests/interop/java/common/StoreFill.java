import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Writes one of every kind of record, and enough of them to fill several files of each kind.
 * Usage: StoreFill NAMESRV BROKER. Prints one line of JSON per message that a reader has to find.
 */
public final class StoreFill {
    public static void main(String[] args) throws Exception {
        try (Bench bench = new Bench(args[0], args[1], "store")) {
            DefaultMQProducer producer = bench.producer();
            plain(bench, producer);
            batched(bench, producer);
            compressed(bench, producer);
            delayed(bench, producer);
            transactions(bench);
            keepOffset(bench);
            System.out.println("{\"done\":true}");
        }
        System.exit(0);
    }

    private static void plain(Bench bench, DefaultMQProducer producer) throws Exception {
        bench.createTopic("T_plain", 4);
        Random random = new Random(7);
        for (int i = 0; i < 600; i++) {
            byte[] body = new byte[1 + random.nextInt(1500)];
            random.nextBytes(body);
            Message message = new Message("T_plain", "tag" + i % 3, "plain-" + i, body);
            message.putUserProperty("number", String.valueOf(i));
            written("T_plain", producer.send(message, new MessageQueue("T_plain", "broker-a", i % 4)), body, "plain-" + i);
        }
    }

    private static void batched(Bench bench, DefaultMQProducer producer) throws Exception {
        bench.createTopic("T_batch", 1);
        for (int b = 0; b < 5; b++) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                messages.add(Bench.message("T_batch", "t", "batch-" + b + "-" + i, "batched " + b + " " + i));
            }
            SendResult sent = producer.send(messages);
            String[] ids = sent.getMsgId().split(",");
            for (int i = 0; i < 20; i++) {
                written("T_batch", ids[i], sent.getMessageQueue().getQueueId(), sent.getQueueOffset() + i,
                    messages.get(i).getBody(), messages.get(i).getKeys());
            }
        }
    }

    private static void compressed(Bench bench, DefaultMQProducer producer) throws Exception {
        bench.createTopic("T_compressed", 1);
        for (int i = 0; i < 5; i++) {
            byte[] body = Bench.bytes(String.join(" ", Collections.nCopies(4000, "squeeze " + i)));
            String key = "compressed-" + i;
            written("T_compressed", producer.send(new Message("T_compressed", "t", key, body.clone())), body, key);
        }
    }

    /** The first is delivered before the broker stops; the second waits in the schedule topic for the next broker. */
    private static void delayed(Bench bench, DefaultMQProducer producer) throws Exception {
        bench.createTopic("T_delay", 1);
        for (int level = 1; level <= 2; level++) {
            byte[] body = Bench.bytes("delayed by level " + level);
            Message message = new Message("T_delay", "t", "delay-" + level, body);
            message.setDelayTimeLevel(level);
            SendResult sent = producer.send(message);
            written("T_delay", sent.getMsgId(), 0, level - 1, body, "delay-" + level);
        }
        bench.readAll("T_delay", 1);
    }

    private static void transactions(Bench bench) throws Exception {
        bench.createTopic("T_tx", 1);
        TransactionMQProducer producer = bench.transactionProducer();
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        bench.started(producer, producer::start, producer::shutdown);
        for (LocalTransactionState state : LocalTransactionState.values()) {
            byte[] body = Bench.bytes("transaction " + state);
            SendResult sent = producer.sendMessageInTransaction(new Message("T_tx", "t", "tx-" + state, body), state);
            if (state == LocalTransactionState.COMMIT_MESSAGE) {
                written("T_tx", sent.getMsgId(), 0, 0, body, "tx-" + state);
            }
        }
        bench.readAll("T_tx", 1);
    }

    private static void keepOffset(Bench bench) throws Exception {
        DefaultMQPullConsumer consumer = bench.pullConsumer();
        MessageQueue queue = new MessageQueue("T_plain", "broker-a", 2);
        consumer.updateConsumeOffset(queue, 77);
        consumer.getOffsetStore().persist(queue);
        Bench.await(() -> consumer.fetchConsumeOffset(queue, true) == 77);
    }

    static void written(String topic, SendResult sent, byte[] body, String key) throws Exception {
        written(topic, sent.getMsgId(), sent.getMessageQueue().getQueueId(), sent.getQueueOffset(), body, key);
    }

    private static void written(String topic, String id, int queueId, long queueOffset, byte[] body, String key)
        throws Exception {
        Map<String, Object> line = Bench.facts("topic", topic, "msgId", id, "queueId", queueId,
            "queueOffset", queueOffset, "body", StoreRead.digest(body), "keys", key);
        System.out.println(Json.line(line));
    }
}
