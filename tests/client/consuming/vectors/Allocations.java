import java.util.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.rebalance.*;
import org.apache.rocketmq.common.message.MessageQueue;

/** Prints which queues Java's strategies give to every member, as JSON lines. */
public class Allocations {
    public static void main(String[] args) {
        Random random = new Random(15);
        List<String> lines = new ArrayList<>();
        for (int round = 0; round < 40; round++) {
            List<MessageQueue> queues = new ArrayList<>();
            for (String broker : new String[] {"room-a@b1", "room-b@b2", "plain", "room-a@b3"}) {
                int count = random.nextInt(6);
                for (int i = 0; i < count; i++) queues.add(new MessageQueue("Topic" + round % 3, broker, i));
            }
            if (queues.isEmpty()) continue;
            List<String> members = new ArrayList<>();
            int count = 1 + random.nextInt(7);
            for (int i = 0; i < count; i++)
                members.add("10.0.0." + random.nextInt(250) + "@room-" + "abc".charAt(random.nextInt(3)) + "#" + i);
            Collections.sort(queues);
            Collections.sort(members);
            AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
            room.setConsumeridcs(new HashSet<>(Arrays.asList("room-a")));
            AllocateMachineRoomNearby.MachineRoomResolver resolver = new AllocateMachineRoomNearby.MachineRoomResolver() {
                public String brokerDeployIn(MessageQueue queue) { return queue.getBrokerName().split("@")[0]; }
                public String consumerDeployIn(String id) { return id.substring(id.indexOf('@') + 1, id.indexOf('#')); }
            };
            Map<String, AllocateMessageQueueStrategy> all = new LinkedHashMap<>();
            all.put("averagely", new AllocateMessageQueueAveragely());
            all.put("circle", new AllocateMessageQueueAveragelyByCircle());
            all.put("machine room", room);
            all.put("nearby", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), resolver));
            all.put("consistent hash", new AllocateMessageQueueConsistentHash());
            all.put("consistent hash of 3", new AllocateMessageQueueConsistentHash(3));
            StringBuilder line = new StringBuilder("{\"queues\":" + indices(queues, null) + ",\"members\":[");
            for (int i = 0; i < members.size(); i++) line.append(i > 0 ? "," : "").append("\"" + members.get(i) + "\"");
            line.append("],\"shares\":{");
            String comma = "";
            for (Map.Entry<String, AllocateMessageQueueStrategy> each : all.entrySet()) {
                line.append(comma + "\"" + each.getKey() + "\":[");
                for (int i = 0; i < members.size(); i++)
                    line.append(i > 0 ? "," : "").append(indices(each.getValue().allocate("g", members.get(i), queues, members), queues));
                line.append("]");
                comma = ",";
            }
            lines.add(line + "}}");
        }
        System.out.println("[\n" + String.join(",\n", lines) + "\n]");
    }

    /** Queues written out, or as their places in `all`. */
    static String indices(List<MessageQueue> queues, List<MessageQueue> all) {
        StringBuilder text = new StringBuilder("[");
        for (MessageQueue queue : queues) {
            text.append(text.length() > 1 ? "," : "");
            if (all == null) text.append("[\"" + queue.getTopic() + "\",\"" + queue.getBrokerName() + "\"," + queue.getQueueId() + "]");
            else text.append(all.indexOf(queue));
        }
        return text + "]";
    }
}
