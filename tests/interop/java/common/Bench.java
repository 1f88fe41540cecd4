import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What a scenario needs: the server's addresses, names of its own, and clients with short timers. */
final class Bench implements AutoCloseable {
    /** How long to wait, in ms, for what has to happen: a wait ends as soon as it does, even on a busy machine. */
    static final int PATIENCE = 150_000;
    /** How long a server may take to answer, in ms; the clients' own 3 s are too little for a busy machine. */
    private static final int ANSWER = 30_000;
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    final String nameServer;
    final String broker;
    final String topic;
    final String group;
    private final List<Callable<?>> closers = new ArrayList<>();
    private DefaultMQAdminExt admin;
    private DefaultMQPullConsumer reader;

    Bench(String nameServer, String broker, String name) {
        this.nameServer = nameServer;
        this.broker = broker;
        this.topic = "T_" + name;
        this.group = "G_" + name;
    }

    DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("P_" + group);
        return started(quick(producer), producer::start, producer::shutdown);
    }

    TransactionMQProducer transactionProducer() {
        return quick(new TransactionMQProducer("P_" + group));
    }

    /** A push consumer that still has to be subscribed; `start` it with {@link #start}. */
    DefaultMQPushConsumer pushConsumer() {
        DefaultMQPushConsumer consumer = quick(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setPersistConsumerOffsetInterval(1000);
        return consumer;
    }

    DefaultMQPushConsumer start(DefaultMQPushConsumer consumer) throws Exception {
        return started(consumer, consumer::start, consumer::shutdown);
    }

    DefaultMQPullConsumer pullConsumer() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        return started(quick(consumer), consumer::start, consumer::shutdown);
    }

    DefaultLitePullConsumer litePullConsumer() {
        return quick(new DefaultLitePullConsumer(group));
    }

    DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            admin = new DefaultMQAdminExt(ANSWER);
            started(quick(admin), admin::start, admin::shutdown);
        }
        return admin;
    }

    void createTopic(String name, int queues) throws Exception {
        TopicConfig config = new TopicConfig(name, queues, queues, 6);
        admin().createAndUpdateTopicConfig(broker, config);
        require("a route to " + name, () -> !admin().examineTopicRouteInfo(name).getQueueDatas().isEmpty());
    }

    /** As {@link #readAll(String)}, once there are so many: Java's queues follow its log a moment later. */
    List<MessageExt> readAll(String name, int wanted) throws Exception {
        List<MessageExt> messages = readAll(name);
        for (long deadline = deadline(); messages.size() < wanted && System.nanoTime() < deadline; Thread.sleep(50)) {
            messages = readAll(name);
        }
        return messages;
    }

    /** Every message of a topic, queue by queue from its beginning, with the old pull consumer. */
    List<MessageExt> readAll(String name) throws Exception {
        if (reader == null) {
            reader = pullConsumer();
        }
        DefaultMQPullConsumer consumer = reader;
        List<MessageExt> messages = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(name)) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    messages.addAll(result.getMsgFoundList());
                }
                offset = result.getNextBeginOffset();
            }
        }
        return messages;
    }

    /** How far the group got in a topic, as the broker knows it. */
    long committed(String name) throws Exception {
        long sum = 0;
        for (var row : admin().examineConsumeStats(group).getOffsetTable().entrySet()) {
            sum += row.getKey().getTopic().equals(name) ? row.getValue().getConsumerOffset() : 0;
        }
        return sum;
    }

    void closeLater(Callable<?> closer) {
        closers.add(closer);
    }

    @Override
    public void close() {
        for (int i = closers.size() - 1; i >= 0; i--) {
            try {
                closers.get(i).call();
            } catch (Exception e) {
                System.err.println("close: " + e);
            }
        }
    }

    /** Whether the condition came true while we waited. */
    static boolean await(Callable<Boolean> condition) throws Exception {
        long deadline = deadline();
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            Thread.sleep(50);
        }
        return true;
    }

    /** Waits for what the next step needs; an exception of the condition means "not yet". */
    static void require(String what, Callable<Boolean> condition) throws Exception {
        AtomicReference<Exception> last = new AtomicReference<>();
        boolean happened = await(() -> {
            try {
                return condition.call();
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception notYet) {
                last.set(notYet);
                return false;
            }
        });
        if (!happened) {
            throw new IllegalStateException("not within " + PATIENCE + " ms: " + what, last.get());
        }
    }

    /** In terms of System.nanoTime(). */
    static long deadline() {
        return System.nanoTime() + PATIENCE * 1_000_000L;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static Map<String, Object> facts(Object... namesAndValues) {
        Map<String, Object> facts = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            facts.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return facts;
    }

    static Map<String, Object> describe(SendResult sent) {
        return facts("status", sent.getSendStatus(), "msgId", sent.getMsgId(), "offsetMsgId", sent.getOffsetMsgId(),
            "queueId", sent.getMessageQueue().getQueueId(), "queueOffset", sent.getQueueOffset());
    }

    static Map<String, Object> describe(MessageExt message) {
        return facts("topic", message.getTopic(), "body", text(message.getBody()), "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(), "msgId", message.getMsgId(), "tags", message.getTags(),
            "keys", message.getKeys(), "flag", message.getFlag(), "reconsumeTimes", message.getReconsumeTimes(),
            "properties", new HashMap<>(message.getProperties()));
    }

    static Message message(String topic, String tags, String keys, String body) {
        return new Message(topic, tags, keys, bytes(body));
    }

    <T extends ClientConfig> T quick(T client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("i" + INSTANCES.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setMqClientApiTimeout(ANSWER);
        if (client instanceof DefaultMQProducer) {
            ((DefaultMQProducer) client).setSendMsgTimeout(ANSWER);
        }
        return client;
    }

    interface Action {
        void run() throws Exception;
    }

    <T> T started(T client, Action start, Action shutdown) throws Exception {
        start.run();
        closeLater(() -> {
            shutdown.run();
            return null;
        });
        return client;
    }
}
