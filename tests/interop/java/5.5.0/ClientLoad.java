import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The Java client as load. One JVM serves all rounds against both brokers, so both meet the same compiled code.
 *
 * <p>Each line of input is one round: scene, name server, topic, seconds, messages to consume, filter. Each line of
 * output is its result: {"count":..,"seconds":..}, or {"error":".."}. A send that fails or is not SEND_OK is an error.
 */
final class ClientLoad {
    private static final int THREADS = 16;
    private static final int IN_FLIGHT = 256;
    private static final int BATCH = 16;
    private static final int BODY_BYTES = 128;
    private static final int DELAY_LEVEL = 18; // two hours: what is measured is taking it, not the later delivery
    private static final long PATIENCE_MS = 90_000;
    private static final AtomicLong NUMBER = new AtomicLong(System.nanoTime());

    private final String nameServer;
    private final String topic;
    private final double seconds;
    private int threadCount = THREADS;
    private int inFlight = IN_FLIGHT;
    private final byte[] body = new byte[BODY_BYTES];
    private final AtomicReference<Throwable> failed = new AtomicReference<>();

    private ClientLoad(String nameServer, String topic, double seconds) {
        this.nameServer = nameServer;
        this.topic = topic;
        this.seconds = seconds;
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (i % 251);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            Map<String, Object> result;
            try {
                ClientLoad load = new ClientLoad(words[1], words[2], Double.parseDouble(words[3]));
                result = load.run(words[0], Long.parseLong(words[4]), words[5]);
            } catch (Throwable error) {
                result = Bench.facts("error", String.valueOf(error));
            }
            System.out.println(Json.line(result));
            System.out.flush();
        }
        System.exit(0);
    }

    private Map<String, Object> run(String scene, long messages, String filter) throws Exception {
        switch (scene) {
            case "one": // as a program that sends one message after another
                threadCount = 1;
                return sending(producer -> checked(producer.send(message())));
            case "many":
                inFlight = 64;
                return async();
            case "sync":
                return sending(producer -> checked(producer.send(message())));
            case "ordered":
                return sending(producer -> {
                    long order = NUMBER.incrementAndGet();
                    return checked(producer.send(message(), (queues, sent, key) ->
                        queues.get((int) ((Long) key % queues.size())), order));
                });
            case "delay":
                return sending(producer -> {
                    Message message = message();
                    message.setDelayTimeLevel(DELAY_LEVEL);
                    return checked(producer.send(message));
                });
            case "batch":
                return sending(producer -> {
                    List<Message> list = new ArrayList<>();
                    for (int i = 0; i < BATCH; i++) {
                        list.add(message());
                    }
                    return checked(producer.send(list)) * BATCH;
                });
            case "async":
                return async();
            case "transactions":
                return transactions();
            case "push":
                return push(messages, MessageSelector.byTag(filter));
            case "push-sql":
                return push(messages, MessageSelector.bySql(filter));
            default:
                throw new IllegalArgumentException("no scene " + scene);
        }
    }

    private Message message() {
        Message message = new Message(topic, "TagA", "key-" + NUMBER.incrementAndGet(), body);
        message.putUserProperty("traceparent", "00-" + Long.toHexString(NUMBER.get()) + "-01");
        return message;
    }

    private static int checked(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("a send has status " + result.getSendStatus());
        }
        return 1;
    }

    private interface Send {
        int by(DefaultMQProducer producer) throws Exception;
    }

    /** Threads that send one after the other. */
    private Map<String, Object> sending(Send send) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer("BENCH_PG_" + NUMBER.incrementAndGet()));
        producer.start();
        try {
            return byThreads(() -> send.by(producer));
        } finally {
            producer.shutdown();
        }
    }

    private interface Step {
        int run() throws Exception;
    }

    private Map<String, Object> byThreads(Step step) throws Exception {
        step.run(); // the route is known and the connection open before the clock starts
        AtomicLong count = new AtomicLong();
        long started = System.nanoTime();
        long deadline = started + (long) (seconds * 1e9);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < threadCount; i++) {
            Thread thread = new Thread(() -> {
                long mine = 0;
                try {
                    while (System.nanoTime() < deadline) {
                        mine += step.run();
                    }
                } catch (Throwable error) {
                    failed.compareAndSet(null, error);
                }
                count.addAndGet(mine);
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return result(count.get(), started);
    }

    private Map<String, Object> async() throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer("BENCH_PG_" + NUMBER.incrementAndGet()));
        producer.start();
        try {
            checked(producer.send(message()));
            Semaphore room = new Semaphore(inFlight);
            AtomicLong count = new AtomicLong();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    if (sent.getSendStatus() != SendStatus.SEND_OK) {
                        failed.compareAndSet(null, new IllegalStateException(sent.getSendStatus().name()));
                    }
                    count.incrementAndGet();
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.compareAndSet(null, error);
                    room.release();
                }
            };
            long started = System.nanoTime();
            long deadline = started + (long) (seconds * 1e9);
            while (System.nanoTime() < deadline && failed.get() == null) {
                room.acquire();
                producer.send(message(), callback);
            }
            if (!room.tryAcquire(inFlight, PATIENCE_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("answers are missing");
            }
            return result(count.get(), started);
        } finally {
            producer.shutdown();
        }
    }

    /** Committed at once. The commit has no answer, so the caller looks for the messages in the store. */
    private Map<String, Object> transactions() throws Exception {
        TransactionMQProducer producer = configured(new TransactionMQProducer("BENCH_PG_" + NUMBER.incrementAndGet()));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            return byThreads(() -> checked(producer.sendMessageInTransaction(message(), null)));
        } finally {
            Thread.sleep(300); // for the last commits
            producer.shutdown();
        }
    }

    /** A new group reads what is in the topic; the clock runs from its first message to its last. */
    private Map<String, Object> push(long messages, MessageSelector selector) throws Exception {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer("BENCH_CG_" + NUMBER.incrementAndGet()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, selector);
        AtomicLong count = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        Semaphore done = new Semaphore(0);
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            if (first.get() == 0) {
                first.compareAndSet(0, System.nanoTime());
            }
            if (count.addAndGet(received.size()) >= messages) {
                last.compareAndSet(0, System.nanoTime());
                done.release();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!done.tryAcquire(PATIENCE_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("consumed " + count.get() + " of " + messages);
            }
        } finally {
            consumer.shutdown();
        }
        return Bench.facts("count", messages, "seconds", (last.get() - first.get()) / 1e9, "extra", count.get() - messages);
    }

    private Map<String, Object> result(long count, long started) {
        double taken = (System.nanoTime() - started) / 1e9;
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        return Bench.facts("count", count, "seconds", taken);
    }

    private <T extends org.apache.rocketmq.client.ClientConfig> T configured(T client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("i" + NUMBER.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setHeartbeatBrokerInterval(1000);
        if (client instanceof DefaultMQProducer) {
            ((DefaultMQProducer) client).setSendMsgTimeout(10_000);
            ((DefaultMQProducer) client).setRetryTimesWhenSendFailed(0);
            ((DefaultMQProducer) client).setRetryTimesWhenSendAsyncFailed(0);
        }
        return client;
    }
}
