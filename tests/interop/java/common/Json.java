import java.util.Collection;
import java.util.Map;

/** Writes plain Java values as one line of JSON, so that the programs here need no library of either RocketMQ line. */
final class Json {
    private Json() {}

    static String line(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            char before = '{';
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(before);
                text(out, String.valueOf(entry.getKey()));
                out.append(':');
                write(out, entry.getValue());
                before = ',';
            }
            out.append(before == '{' ? "{}" : "}");
        } else if (value instanceof Collection) {
            char before = '[';
            for (Object item : (Collection<?>) value) {
                out.append(before);
                write(out, item);
                before = ',';
            }
            out.append(before == '[' ? "[]" : "]");
        } else {
            text(out, value.toString());
        }
    }

    private static void text(StringBuilder out, String value) {
        out.append('"');
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
