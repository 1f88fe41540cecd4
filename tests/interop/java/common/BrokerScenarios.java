import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the broker does with a message between sending and consuming, and how to find it again. */
final class BrokerScenarios {
    private BrokerScenarios() {}

    static Map<String, Object> delayLevel(Bench bench) throws Exception {
        return timed(bench, message -> message.setDelayTimeLevel(2));
    }

    static Map<String, Object> timer(Bench bench) throws Exception {
        return timed(bench, message -> MessageAccessor.putProperty(message, "TIMER_DELAY_MS", "2500"));
    }

    static Map<String, Object> timerAt(Bench bench) throws Exception {
        return timed(bench, message -> MessageAccessor.putProperty(
            message, "TIMER_DELIVER_MS", String.valueOf(System.currentTimeMillis() + 2500)));
    }

    private static Map<String, Object> timed(Bench bench, java.util.function.Consumer<Message> delay) throws Exception {
        bench.createTopic(bench.topic, 1);
        Map<String, Long> arrivals = new ConcurrentHashMap<>();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.subscribe(bench.topic, "late || now");
        consumer.registerMessageListener((MessageListenerConcurrently) (arrived, context) -> {
            for (MessageExt message : arrived) {
                arrivals.put(Bench.text(message.getBody()), System.currentTimeMillis());
                inbox.add(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        bench.start(consumer);
        DefaultMQProducer producer = bench.producer();
        producer.send(Bench.message(bench.topic, "now", null, "warm-up"));
        inbox.awaitSize(1);
        Message late = Bench.message(bench.topic, "late", "late-key", "delayed");
        long sentAt = System.currentTimeMillis();
        delay.accept(late);
        SendResult sent = producer.send(late);
        producer.send(Bench.message(bench.topic, "now", null, "at once"));
        inbox.awaitSize(3); // in which order is up to the threads of the consumer
        Long arrived = arrivals.get("delayed");
        return Bench.facts("status", sent.getSendStatus(), "bodies", inbox.bodies(),
            "delay", arrived == null ? null : arrived - sentAt, "described", inbox.described());
    }

    static Map<String, Object> retry(Bench bench) throws Exception {
        return failing(bench, 5, 1);
    }

    static Map<String, Object> deadLetter(Bench bench) throws Exception {
        Map<String, Object> facts = failing(bench, 2, Integer.MAX_VALUE);
        String dead = "%DLQ%" + bench.group;
        Bench.require("the topic " + dead, () -> bench.admin().examineTopicConfig(bench.broker, dead) != null);
        bench.createTopic(dead, 1); // 4.x makes it writable only; operators open it like this to look inside
        facts.put("dead", SendScenarios.describe(bench.readAll(dead, 1)));
        return facts;
    }

    private static Map<String, Object> failing(Bench bench, int retriesMax, int failures) throws Exception {
        bench.createTopic(bench.topic, 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.setMaxReconsumeTimes(retriesMax);
        consumer.subscribe(bench.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (arrived, context) -> {
            arrived.forEach(inbox::add);
            boolean fail = arrived.get(0).getReconsumeTimes() < failures;
            return fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        bench.start(consumer);
        bench.producer().send(Bench.message(bench.topic, "t", "failing-key", "unlucky"));
        inbox.awaitSize(Math.min(retriesMax, failures) + 1);
        inbox.settle(500);
        return Bench.facts("seen", inbox.described());
    }

    static Map<String, Object> transaction(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        Map<String, Integer> checks = new ConcurrentHashMap<>();
        TransactionMQProducer producer = bench.transactionProducer();
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
                return (LocalTransactionState) wanted;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = Bench.text(message.getBody());
                checks.merge(body, 1, Integer::sum);
                return body.endsWith("commit")
                    ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        bench.started(producer, producer::start, producer::shutdown);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.subscribe(bench.topic, "*");
        inbox.listen(consumer);
        bench.start(consumer);
        List<Object> sent = new ArrayList<>();
        sent.add(transact(producer, bench, "commit", LocalTransactionState.COMMIT_MESSAGE));
        sent.add(transact(producer, bench, "rollback", LocalTransactionState.ROLLBACK_MESSAGE));
        sent.add(transact(producer, bench, "unknown, then commit", LocalTransactionState.UNKNOW));
        sent.add(transact(producer, bench, "unknown, then rollback", LocalTransactionState.UNKNOW));
        inbox.awaitSize(2);
        Bench.await(() -> checks.size() >= 2);
        inbox.settle(1500);
        return Bench.facts("sent", sent, "bodies", inbox.bodies(), "checks", new TreeMap<>(checks),
            "described", inbox.described());
    }

    private static Object transact(TransactionMQProducer producer, Bench bench, String body, LocalTransactionState state)
        throws Exception {
        return producer.sendMessageInTransaction(Bench.message(bench.topic, "tx", "tx-key", body), state).getSendStatus();
    }

    static Map<String, Object> query(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        DefaultMQProducer producer = bench.producer();
        long before = System.currentTimeMillis();
        SendResult first = producer.send(Bench.message(bench.topic, "q", "one two", "first"));
        Thread.sleep(20);
        long between = System.currentTimeMillis();
        producer.send(Bench.message(bench.topic, "q", "two", "second"));
        MessageQueue queue = first.getMessageQueue();
        long after = System.currentTimeMillis() + 2000;
        long begin = before - 2000; // the index keeps whole seconds
        String many = bench.topic + "_Many";
        bench.createTopic(many, 1);
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < 70; number++) {
            batch.add(Bench.message(many, "q", number < 69 ? "shared" : "shared last", "body " + number));
        }
        producer.send(batch);
        byKey(producer, many, "last", begin, after, 1); // then the index has all before it
        QueryResult shared = producer.queryMessage(many, "shared", 500, begin, after);
        return Bench.facts(
            "shared by 70", SendScenarios.bodies(shared.getMessageList()),
            "by unique id", Bench.text(find(() -> producer.viewMessage(bench.topic, first.getMsgId())).getBody()),
            "by offset id", Bench.text(producer.viewMessage(bench.topic, first.getOffsetMsgId()).getBody()),
            "key one", byKey(producer, bench.topic, "one", begin, after, 1),
            "key two", byKey(producer, bench.topic, "two", begin, after, 2),
            "key two, long ago", SendScenarios.refusal(
                () -> producer.queryMessage(bench.topic, "two", 32, before - 9_000_000, before - 5_000_000)),
            "no such key", SendScenarios.refusal(() -> producer.queryMessage(bench.topic, "none", 32, begin, after)),
            "min", producer.minOffset(queue), "max", producer.maxOffset(queue),
            "offset before", producer.searchOffset(queue, before - 60_000),
            "offset between", producer.searchOffset(queue, between),
            "offset after", producer.searchOffset(queue, after + 60_000),
            "before", before, "earliest", producer.earliestMsgStoreTime(queue), "between", between);
    }

    interface Finder {
        MessageExt find() throws Exception;
    }

    /** The index is filled a moment after the send. */
    private static MessageExt find(Finder finder) throws Exception {
        for (long deadline = Bench.deadline();; Thread.sleep(50)) {
            try {
                return finder.find();
            } catch (Exception e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
            }
        }
    }

    private static List<String> byKey(DefaultMQProducer producer, String topic, String key, long begin, long end, int wanted)
        throws Exception {
        List<String> bodies = new ArrayList<>();
        Bench.await(() -> {
            try {
                QueryResult found = producer.queryMessage(topic, key, 32, begin, end);
                bodies.clear();
                bodies.addAll(SendScenarios.bodies(found.getMessageList()));
            } catch (Exception notYet) {
                return false;
            }
            return bodies.size() >= wanted;
        });
        Collections.sort(bodies);
        return bodies;
    }
}
