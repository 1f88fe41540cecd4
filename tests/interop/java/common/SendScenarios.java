import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The ways to send. */
final class SendScenarios {
    private SendScenarios() {}

    static Map<String, Object> sync(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 4);
        DefaultMQProducer producer = bench.producer();
        List<Object> sent = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            Message message = Bench.message(bench.topic, "tag" + i % 2, "key" + i, "sync-" + i + "-\u4f60\u597d");
            message.setFlag(i);
            message.putUserProperty("colour", "blue " + i);
            message.putUserProperty("\u989c\u8272", "\u84dd \ud83d\ude80 = {\"a\":1}");
            sent.add(Bench.describe(producer.send(message)));
        }
        return Bench.facts("sent", sent, "read", describe(bench.readAll(bench.topic, 8)));
    }

    static Map<String, Object> async(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 4);
        DefaultMQProducer producer = bench.producer();
        ConcurrentLinkedQueue<String> answers = new ConcurrentLinkedQueue<>();
        int count = 50;
        for (int i = 0; i < count; i++) {
            producer.send(Bench.message(bench.topic, null, null, "async-" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.add(result.getSendStatus().name());
                }

                @Override
                public void onException(Throwable error) {
                    answers.add(error.toString());
                }
            });
        }
        Bench.await(() -> answers.size() >= count);
        return Bench.facts("answers", answers, "bodies", bodies(bench.readAll(bench.topic, count)));
    }

    static Map<String, Object> oneWay(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        DefaultMQProducer producer = bench.producer();
        for (int i = 0; i < 10; i++) {
            producer.sendOneway(Bench.message(bench.topic, null, null, "oneway-" + i));
        }
        return Bench.facts("bodies", bodies(bench.readAll(bench.topic, 10)));
    }

    static Map<String, Object> batch(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        DefaultMQProducer producer = bench.producer();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            messages.add(Bench.message(bench.topic, "t" + i % 2, "batch-key-" + i, "batch-" + i));
        }
        MessageQueue queue = producer.fetchPublishMessageQueues(bench.topic).get(1);
        SendResult sent = producer.send(messages, queue);
        return Bench.facts("sent", Bench.describe(sent), "read", describe(bench.readAll(bench.topic, 10)));
    }

    static Map<String, Object> compressed(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        String big = String.join(",", Collections.nCopies(20_000, "compressible"));
        List<Object> kinds = new ArrayList<>();
        for (String kind : Arrays.asList("ZLIB", "LZ4", "ZSTD")) {
            DefaultMQProducer producer = bench.producer();
            if (compressWith(producer, kind)) {
                producer.send(Bench.message(bench.topic, null, null, kind + big));
                kinds.add(kind);
            }
        }
        List<Object> read = new ArrayList<>();
        for (MessageExt message : bench.readAll(bench.topic, kinds.size())) {
            String body = Bench.text(message.getBody());
            String kind = body.substring(0, body.indexOf("compressible"));
            read.add(Bench.facts("kind", kind, "whole", body.equals(kind + big), "stored", message.getStoreSize()));
        }
        return Bench.facts("kinds", kinds, "bytes", big.length(), "read", read);
    }

    /** 4.9.7 knows zlib only; the setter of 5.x takes an enum that 4.9.7 does not have. */
    private static boolean compressWith(DefaultMQProducer producer, String kind) throws Exception {
        for (var method : DefaultMQProducer.class.getMethods()) {
            if (method.getName().equals("setCompressType")) {
                Class<?> type = method.getParameterTypes()[0];
                method.invoke(producer, type.getMethod("valueOf", String.class).invoke(null, kind));
                return true;
            }
        }
        return kind.equals("ZLIB");
    }

    static Map<String, Object> vipChannel(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        DefaultMQProducer producer = bench.quick(new DefaultMQProducer("P_" + bench.group));
        producer.setVipChannelEnabled(true);
        bench.started(producer, producer::start, producer::shutdown);
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.setVipChannelEnabled(true);
        consumer.subscribe(bench.topic, "*");
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        bench.start(consumer);
        for (int i = 0; i < 4; i++) {
            producer.send(Bench.message(bench.topic, null, null, "vip-" + i));
        }
        inbox.awaitSize(4);
        return Bench.facts("bodies", inbox.bodies());
    }

    static Map<String, Object> autoTopic(Bench bench) throws Exception {
        DefaultMQProducer producer = bench.producer();
        producer.setDefaultTopicQueueNums(3);
        SendResult sent = producer.send(Bench.message(bench.topic, null, null, "first of its topic"));
        Bench.require("a route", () -> !bench.admin().examineTopicRouteInfo(bench.topic).getQueueDatas().isEmpty());
        var route = bench.admin().examineTopicRouteInfo(bench.topic).getQueueDatas().get(0);
        return Bench.facts("status", sent.getSendStatus(), "queues", route.getWriteQueueNums(), "perm", route.getPerm(),
            "bodies", bodies(bench.readAll(bench.topic, 1)));
    }

    static Map<String, Object> requestReply(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 2);
        DefaultMQProducer answers = bench.producer();
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.subscribe(bench.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (arrived, context) -> {
            for (MessageExt message : arrived) {
                try {
                    byte[] body = Bench.bytes("reply to " + Bench.text(message.getBody()));
                    answers.send(MessageUtil.createReplyMessage(message, body));
                } catch (Exception e) {
                    e.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        bench.start(consumer);
        DefaultMQProducer producer = bench.producer();
        List<Object> replies = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message reply = producer.request(Bench.message(bench.topic, null, null, "question " + i), Bench.PATIENCE);
            replies.add(Bench.text(reply.getBody()));
        }
        return Bench.facts("replies", replies);
    }

    /** Requests with an account's signature; a broker without access control ignores it. */
    static Map<String, Object> signed(Bench bench) throws Exception {
        bench.createTopic(bench.topic, 1);
        var hook = new AclClientRPCHook(new SessionCredentials("somebody", "a secret of twelve"));
        DefaultMQProducer producer = bench.quick(new DefaultMQProducer("P_" + bench.group, hook));
        bench.started(producer, producer::start, producer::shutdown);
        SendResult sent = producer.send(Bench.message(bench.topic, null, null, "signed"));
        return Bench.facts("status", sent.getSendStatus(), "bodies", bodies(bench.readAll(bench.topic, 1)));
    }

    static Map<String, Object> refusals(Bench bench) throws Exception {
        DefaultMQProducer producer = bench.producer();
        producer.setMaxMessageSize(16 << 20);
        producer.setCompressMsgBodyOverHowmuch(64 << 20);
        return Bench.facts(
            "too big", refusal(() -> producer.send(new Message("T_big", new byte[5 << 20]))),
            "long properties", refusal(() -> {
                Message message = Bench.message("T_big", null, null, "small");
                message.putUserProperty("long", String.join("", Collections.nCopies(33_000, "x")));
                producer.send(message);
            }),
            "system topic", refusal(() -> producer.send(Bench.message("SCHEDULE_TOPIC_XXXX", null, null, "no"))));
    }

    static String refusal(Bench.Action action) {
        try {
            action.run();
            return "accepted";
        } catch (Exception e) {
            return e.getClass().getSimpleName() + ": " + e.getMessage();
        }
    }

    static List<String> bodies(List<MessageExt> messages) {
        List<String> bodies = new ArrayList<>();
        for (MessageExt message : messages) {
            bodies.add(Bench.text(message.getBody()));
        }
        return bodies;
    }

    static List<Map<String, Object>> describe(List<MessageExt> messages) {
        List<Map<String, Object>> described = new ArrayList<>();
        for (MessageExt message : messages) {
            described.add(Bench.describe(message));
        }
        return described;
    }
}
