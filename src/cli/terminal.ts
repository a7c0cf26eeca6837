/**
 * The streams of a command: whatever a caller, an engine or a configuration named something, its
 * letters reach the terminal and its control characters do not. They could erase lines, change
 * colours or the title, or turn the direction of text.
 */
import type { Console, TextOutput } from './command.ts';

/** Control characters but the line end, and marks that turn the direction of text. */
const UNSAFE =
  // oxlint-disable-next-line no-control-regex -- these are what it is about
  /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** The text with unsafe characters as `\\u001b`, which a JSON text stays valid by. */
export function printable(text: string): string {
  return text.replaceAll(UNSAFE, escaped);
}

/** The same on one line, for a cell of a table or a name in a sentence. */
export function printableLine(text: string): string {
  return printable(text).replaceAll('\n', '\\n');
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** The console whose streams print what is printable; `draw` is for lines that are drawn again. */
export function printableConsole(console: Console): Console {
  return {
    ...console,
    stdout: printableOutput(console.stdout),
    stderr: printableOutput(console.stderr),
  };
}

/** The output for a line that is drawn again and again, which needs control characters. */
export function drawingOutput(output: TextOutput): TextOutput {
  return { ...output, write: (text) => output.draw?.(text) };
}

const DEFAULT_COLUMNS = 80;

function printableOutput(output: TextOutput): TextOutput {
  return {
    isTTY: output.isTTY === true,
    columns: output.columns ?? DEFAULT_COLUMNS,
    write: (text: string) => output.write(printable(text)),
    draw: (text: string) => output.write(text),
  };
}
