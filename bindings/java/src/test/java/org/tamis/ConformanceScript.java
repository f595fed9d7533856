package org.tamis;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The lines of the script that all bindings answer alike: {@code bindings/conformance}, whose README has the grammar. */
final class ConformanceScript {
    static final Path DIRECTORY = Path.of("..", "conformance");

    private ConformanceScript() {}

    /** A test: its name, with that of its file, and its lines. */
    static final class Test {
        final String name;
        final List<Line> lines = new ArrayList<>();

        Test(String name) {
            this.name = name;
        }
    }

    /** A command with its arguments, which are words (String) or bytes, and the answer that is expected. */
    static final class Line {
        final String where;
        final String command;
        final List<Object> arguments;
        final List<Object> answer;

        private Line(String where, List<Object> tokens) {
            int arrow = tokens.indexOf("=>");
            int end = arrow < 0 ? tokens.size() : arrow;
            this.where = where;
            command = (String) tokens.get(0);
            arguments = tokens.subList(1, end);
            answer = arrow < 0 ? List.of() : tokens.subList(end + 1, tokens.size());
        }
    }

    /** Returns the tests of all files. */
    static List<Test> tests() throws IOException {
        List<Path> files = new ArrayList<>();
        try (DirectoryStream<Path> stream = Files.newDirectoryStream(DIRECTORY, "*.txt")) {
            stream.forEach(files::add);
        }
        files.sort(null);
        List<Test> tests = new ArrayList<>();
        for (Path file : files) {
            tests.addAll(parsed(file.getFileName().toString(), Files.readAllLines(file, US_ASCII)));
        }
        return tests;
    }

    static List<Test> parsed(String file, List<String> lines) {
        List<Test> tests = new ArrayList<>();
        for (int i = 0; i < lines.size(); i++) {
            String line = lines.get(i);
            if (line.startsWith("#") || line.isBlank()) {
                continue;
            }
            List<Object> tokens = tokens(line);
            if (tokens.get(0).equals("test")) {
                tests.add(new Test(file + ": " + tokens.get(1)));
            } else {
                Line parsed = new Line(file + ", line " + (i + 1) + ": " + line, tokens);
                tests.get(tests.size() - 1).lines.add(parsed);
            }
        }
        return tests;
    }

    private static List<Object> tokens(String line) {
        List<Object> tokens = new ArrayList<>();
        for (int at = 0; at < line.length(); ) {
            if (line.charAt(at) == ' ') {
                at++;
                continue;
            }
            boolean quoted = line.charAt(at) == '"';
            int close = quoted ? line.indexOf('"', at + 1) : at;
            int space = line.indexOf(' ', close);
            int end = space < 0 ? line.length() : space;
            if (quoted) {
                int times = end == close + 1 ? 1 : Integer.parseInt(line.substring(close + 2, end));
                tokens.add(repeated(bytes(line.substring(at + 1, close)), times));
            } else {
                tokens.add(line.substring(at, end));
            }
            at = end;
        }
        return tokens;
    }

    private static byte[] bytes(String text) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) == '\\') {
                bytes.write(Integer.parseInt(text.substring(i + 2, i + 4), 16));
                i += 3;
            } else {
                bytes.write(text.charAt(i));
            }
        }
        return bytes.toByteArray();
    }

    private static byte[] repeated(byte[] bytes, int times) {
        byte[] all = Arrays.copyOf(bytes, bytes.length * times);
        for (int i = bytes.length; i < all.length; i++) {
            all[i] = bytes[i % bytes.length];
        }
        return all;
    }
}
