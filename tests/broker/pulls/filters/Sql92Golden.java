import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Says what the real rocketmq-filter classes make of expressions. One case per line of standard input, all parts
 * in hex: the expression, then name and value of each property, separated by spaces. One letter per line of
 * standard output: T, F, N (unknown), E (evaluation failed), X (does not parse).
 */
public class Sql92Golden {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            Map<String, Object> properties = new HashMap<>();
            for (int i = 1; i + 1 < parts.length; i += 2) {
                properties.put(text(parts[i]), text(parts[i + 1]));
            }
            System.out.println(judge(text(parts[0]), properties));
        }
    }

    static String judge(String expression, Map<String, Object> properties) {
        Expression compiled;
        try {
            compiled = SelectorParser.parse(expression);
        } catch (Throwable e) {
            return "X";
        }
        try {
            Object result = compiled.evaluate(new EvaluationContext() {
                public Object get(String name) {
                    return properties.get(name);
                }

                public Map<String, Object> keyValues() {
                    return properties;
                }
            });
            return result == null ? "N" : ((Boolean) result) ? "T" : "F";
        } catch (Throwable e) {
            return "E";
        }
    }

    static String text(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
