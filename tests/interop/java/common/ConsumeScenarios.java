import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The ways to consume. */
final class ConsumeScenarios {
    private ConsumeScenarios() {}

    static Map<String, Object> tags(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.subscribe(bench.topic, "red || green || \u7eff\u8272 || \ud83d\ude80");
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        bench.start(consumer);
        DefaultMQProducer producer = bench.producer();
        String[] tags = {"red", "blue", "green", "red", "yellow", "green", "blue", "\u7eff\u8272", "\ud83d\ude80", "\u7eff"};
        for (String tag : tags) {
            producer.send(Bench.message(bench.topic, tag, null, tag));
        }
        inbox.awaitSize(6);
        inbox.settle(300);
        return Bench.facts("bodies", inbox.bodies());
    }

    static Map<String, Object> sql92(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        String sql = "(a BETWEEN 3 AND 6 AND shape IN ('round', 'flat')) OR TAGS = 'always' OR missing IS NOT NULL";
        consumer.subscribe(bench.topic, MessageSelector.bySql(sql));
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        bench.start(consumer);
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 10; i++) {
            Message message = Bench.message(bench.topic, i == 9 ? "always" : "some", null, "sql-" + i);
            message.putUserProperty("a", String.valueOf(i));
            message.putUserProperty("shape", i % 2 == 0 ? "round" : i == 5 ? "flat" : "square");
            producer.send(message);
        }
        inbox.awaitSize(4);
        inbox.settle(300);
        DefaultMQPushConsumer broken = bench.pushConsumer();
        broken.setConsumerGroup(bench.group + "_broken");
        broken.subscribe(bench.topic, MessageSelector.bySql("a > > 3"));
        new Inbox().listen(broken);
        return Bench.facts("bodies", inbox.bodies(), "broken", SendScenarios.refusal(() -> bench.start(broken)));
    }

    /** Orders go to the queue of their number; one message asks for a moment of patience the first time. */
    static Map<String, Object> orderly(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 4);
        DefaultMQProducer producer = bench.producer();
        for (int step = 0; step < 10; step++) {
            for (int order = 0; order < 3; order++) {
                Message message = Bench.message(bench.topic, null, null, order + ":" + step);
                producer.send(message, (queues, m, arg) -> queues.get((Integer) arg % queues.size()), order);
            }
        }
        Inbox inbox = new Inbox();
        Map<String, Integer> attempts = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(bench.topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (arrived, context) -> {
            for (MessageExt message : arrived) {
                String body = Bench.text(message.getBody());
                if (attempts.merge(body, 1, Integer::sum) == 1 && body.equals("1:4")) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                inbox.add(message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        bench.start(consumer);
        inbox.awaitSize(30);
        Map<String, List<String>> orders = new TreeMap<>();
        for (String body : inbox.bodies()) {
            String[] parts = body.split(":");
            orders.computeIfAbsent(parts[0], key -> new ArrayList<>()).add(parts[1]);
        }
        return Bench.facts("orders", orders, "attempts of 1:4", attempts.get("1:4"));
    }

    /** The operator hands one message to one consumer: the broker passes the request on and the verdict back. */
    static Map<String, Object> consumeDirectly(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.subscribe(bench.topic, "*");
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        bench.start(consumer);
        var sent = bench.producer().send(Bench.message(bench.topic, null, null, "by hand"));
        inbox.awaitSize(1);
        String client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        Bench.require("the message in the index", () -> bench.admin().viewMessage(bench.topic, sent.getMsgId()) != null);
        var verdict = bench.admin().consumeMessageDirectly(bench.group, client, bench.topic, sent.getMsgId());
        var running = bench.admin().getConsumerRunningInfo(bench.group, client, false);
        return Bench.facts("verdict", verdict.getConsumeResult(), "bodies", inbox.deliveries(),
            "subscribed", running.getSubscriptionSet().size(), "queues", running.getMqTable().size());
    }

    /** Two orderly consumers never work on a queue at once; when one leaves, the other gets its queues. */
    static Map<String, Object> orderlyTakeOver(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        Inbox inbox = new Inbox();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = bench.pushConsumer();
            consumer.subscribe(bench.topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (arrived, context) -> {
                arrived.forEach(inbox::add);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumers.add(bench.start(consumer));
        }
        boolean shared = Bench.await(() -> queues(consumers.get(0), bench) == 1 && queues(consumers.get(1), bench) == 1);
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 10; i++) {
            producer.send(Bench.message(bench.topic, null, null, "a" + i), new MessageQueue(bench.topic, "broker-a", i % 2));
        }
        inbox.awaitSize(10);
        consumers.get(1).shutdown();
        for (int i = 0; i < 10; i++) {
            producer.send(Bench.message(bench.topic, null, null, "b" + i), new MessageQueue(bench.topic, "broker-a", i % 2));
        }
        inbox.awaitSize(20);
        Map<String, List<String>> queues = new TreeMap<>();
        for (MessageExt message : inbox.all()) {
            queues.computeIfAbsent(String.valueOf(message.getQueueId()), key -> new ArrayList<>()).add(Bench.text(message.getBody()));
        }
        return Bench.facts("shared", shared, "queues", queues);
    }

    static Map<String, Object> clustering(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 4);
        List<Inbox> inboxes = Arrays.asList(new Inbox(), new Inbox());
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (Inbox inbox : inboxes) {
            DefaultMQPushConsumer consumer = bench.pushConsumer();
            consumer.subscribe(bench.topic, "*");
            inbox.listen(consumer);
            consumers.add(bench.start(consumer));
        }
        boolean shared = Bench.await(() -> queues(consumers.get(0), bench) == 2 && queues(consumers.get(1), bench) == 2);
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 40; i++) {
            producer.send(Bench.message(bench.topic, null, null, "shared-" + i));
        }
        Bench.await(() -> {
            Set<String> seen = new HashSet<>(inboxes.get(0).bodies()); // both may get the same one while they share anew
            seen.addAll(inboxes.get(1).bodies());
            return seen.size() >= 40;
        });
        List<String> first = inboxes.get(0).bodies();
        List<String> second = inboxes.get(1).bodies();
        consumers.get(1).shutdown();
        boolean taken = Bench.await(() -> queues(consumers.get(0), bench) == 4);
        Set<String> alone = new TreeSet<>();
        for (int i = 0; i < 8; i++) {
            producer.send(Bench.message(bench.topic, null, null, "alone-" + i));
            alone.add("alone-" + i);
        }
        Bench.await(() -> inboxes.get(0).bodies().containsAll(alone));
        alone.retainAll(inboxes.get(0).bodies());
        return Bench.facts("shared", shared, "first", first, "second", second, "taken over", taken, "alone", alone);
    }

    /** Many messages at once, large and small, to two consumers. */
    static Map<String, Object> volume(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 8);
        Map<String, Integer> times = new ConcurrentHashMap<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = bench.pushConsumer();
            consumer.setPullBatchSize(64);
            consumer.subscribe(bench.topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (arrived, context) -> {
                arrived.forEach(message -> times.merge(message.getKeys() + ":" + message.getBody().length, 1, Integer::sum));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            bench.start(consumer);
        }
        DefaultMQProducer producer = bench.producer();
        producer.setRetryTimesWhenSendAsyncFailed(0);
        int count = 6000;
        AtomicInteger accepted = new AtomicInteger();
        ConcurrentLinkedQueue<String> errors = new ConcurrentLinkedQueue<>();
        Semaphore inFlight = new Semaphore(256);
        Random random = new Random(3);
        for (int i = 0; i < count; i++) {
            inFlight.acquire();
            byte[] body = new byte[1 + random.nextInt(3000)];
            random.nextBytes(body);
            producer.send(new Message(bench.topic, "t", String.valueOf(i), body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    accepted.incrementAndGet();
                    inFlight.release();
                }

                @Override
                public void onException(Throwable error) {
                    errors.add(error.toString());
                    inFlight.release();
                }
            });
        }
        inFlight.acquire(256);
        Bench.await(() -> times.size() >= accepted.get());
        return Bench.facts("accepted", accepted.get(), "received", times.size(), "errors", errors);
    }

    /** A new group that wants only the newest still gets what lies before it in a young topic. */
    static Map<String, Object> fromLast(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        DefaultMQProducer producer = bench.producer();
        producer.send(Bench.message(bench.topic, null, null, "before"));
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(bench.topic, "*");
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        bench.start(consumer);
        Bench.await(() -> queues(consumer, bench) == 1);
        producer.send(Bench.message(bench.topic, null, null, "after"));
        inbox.awaitSize(2);
        return Bench.facts("bodies", inbox.bodies());
    }

    /** A topic is deleted and created again under the same name. */
    static Map<String, Object> recreatedTopic(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 3; i++) {
            producer.send(Bench.message(bench.topic, null, null, "old-" + i));
        }
        bench.admin().deleteTopicInBroker(Collections.singleton(bench.broker), bench.topic);
        bench.createTopic(bench.topic, 1);
        MessageQueue queue = new MessageQueue(bench.topic, "broker-a", 0);
        List<Object> offsets = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            offsets.add(producer.send(Bench.message(bench.topic, null, null, "new-" + i), queue).getQueueOffset());
        }
        return Bench.facts("offsets", offsets, "bodies", SendScenarios.bodies(bench.readAll(bench.topic, 2)));
    }

    static Map<String, Object> broadcasting(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        List<Inbox> inboxes = Arrays.asList(new Inbox(), new Inbox());
        for (Inbox inbox : inboxes) {
            DefaultMQPushConsumer consumer = bench.pushConsumer();
            // The enum lives in another package in each line; its own value leads to it.
            consumer.setMessageModel(consumer.getMessageModel().valueOf("BROADCASTING"));
            consumer.subscribe(bench.topic, "*");
            inbox.listen(consumer);
            bench.start(consumer);
        }
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 6; i++) {
            producer.send(Bench.message(bench.topic, null, null, "all-" + i));
        }
        Bench.await(() -> inboxes.get(0).size() >= 6 && inboxes.get(1).size() >= 6);
        return Bench.facts("first", inboxes.get(0).bodies(), "second", inboxes.get(1).bodies());
    }

    static Map<String, Object> litePull(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 10; i++) {
            producer.send(Bench.message(bench.topic, i % 2 == 0 ? "even" : "odd", null, "lite-" + i));
        }
        DefaultLitePullConsumer consumer = bench.litePullConsumer();
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(bench.topic, "even");
        bench.started(consumer, consumer::start, consumer::shutdown);
        Set<String> even = poll(consumer, 5);
        consumer.commitSync();
        DefaultLitePullConsumer assigned = bench.litePullConsumer();
        assigned.setConsumerGroup(bench.group + "_assigned");
        assigned.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        bench.started(assigned, assigned::start, assigned::shutdown);
        Collection<MessageQueue> queues = assigned.fetchMessageQueues(bench.topic);
        assigned.assign(queues);
        Set<String> everything = poll(assigned, 10);
        for (MessageQueue queue : queues) {
            assigned.seekToBegin(queue); // only now: a pull still on its way would bring its messages twice
        }
        Set<String> again = poll(assigned, 10);
        List<Long> committed = new ArrayList<>();
        for (MessageQueue queue : queues) {
            committed.add(consumer.committed(queue));
        }
        return Bench.facts("even", even, "everything", everything, "again", again, "committed", committed);
    }

    static Map<String, Object> pull(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        DefaultMQPullConsumer consumer = bench.pullConsumer();
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 6; i++) {
            producer.send(Bench.message(bench.topic, i % 3 == 0 ? "third" : "other", null, "pull-" + i));
        }
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(bench.topic).iterator().next();
        Bench.require("all six in the queue", () -> consumer.maxOffset(queue) == 6);
        PullResult third = consumer.pull(queue, "third", 0, 32);
        PullResult beyond = consumer.pull(queue, "*", 100, 32);
        PullResult none = consumer.pull(queue, "*", 6, 32);
        long asked = System.nanoTime();
        Thread late = new Thread(() -> {
            try {
                Thread.sleep(700);
                producer.send(Bench.message(bench.topic, null, null, "late"));
            } catch (Exception e) {
                e.printStackTrace();
            }
        });
        late.start();
        PullResult held = consumer.pullBlockIfNotFound(queue, "*", 6, 32);
        long waited = (System.nanoTime() - asked) / 1_000_000;
        consumer.updateConsumeOffset(queue, 5);
        consumer.getOffsetStore().persist(queue);
        boolean kept = Bench.await(() -> consumer.fetchConsumeOffset(queue, true) == 5);
        return Bench.facts("third", SendScenarios.bodies(third.getMsgFoundList()), "min", third.getMinOffset(),
            "max", third.getMaxOffset(), "next", third.getNextBeginOffset(), "beyond", beyond.getPullStatus(),
            "beyond next", beyond.getNextBeginOffset(), "none", none.getPullStatus(),
            "held", SendScenarios.bodies(held.getMsgFoundList()), "waited", waited, "offset kept", kept);
    }

    /** Everything is consumed once, the group's offset goes back to the first message, and all comes again. */
    static Map<String, Object> resetOffset(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.subscribe(bench.topic, "*");
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        bench.start(consumer);
        DefaultMQProducer producer = bench.producer();
        long start = System.currentTimeMillis() - 1000;
        for (int i = 0; i < 5; i++) {
            producer.send(Bench.message(bench.topic, null, null, "again-" + i));
        }
        inbox.awaitSize(5);
        Bench.require("the group's offset at the broker", () -> bench.committed(bench.topic) == 5);
        int before = inbox.deliveries().size();
        var reset = bench.admin().resetOffsetByTimestamp(bench.topic, bench.group, start, true);
        Bench.await(() -> new HashSet<>(since(before, inbox)).size() >= 5);
        return Bench.facts("again", since(before, inbox), "reset", new ArrayList<>(reset.values()));
    }

    private static List<String> since(int count, Inbox inbox) {
        List<String> deliveries = inbox.deliveries();
        return deliveries.subList(count, deliveries.size());
    }

    /** So many different messages: when queues are shared anew, some come again. */
    private static Set<String> poll(DefaultLitePullConsumer consumer, int wanted) {
        Set<String> bodies = new TreeSet<>();
        for (long deadline = Bench.deadline(); bodies.size() < wanted && System.nanoTime() < deadline;) {
            bodies.addAll(SendScenarios.bodies(consumer.poll(500)));
        }
        return bodies;
    }

    private static int queues(DefaultMQPushConsumer consumer, Bench bench) {
        int count = 0;
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            count += queue.getTopic().equals(bench.topic) ? 1 : 0;
        }
        return count;
    }
}
