/**
 * Shows how far something long has come: one line that is drawn again and again on a terminal,
 * plain lines every tenth otherwise. Knows nothing of what is being done.
 */
import type { DownloadProgress } from '../engines/local/model-download.ts';

/** The part of a stream that is needed; `process.stderr` is one. */
export interface ProgressOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const BAR_CHARACTERS = 24;
const DEFAULT_COLUMNS = 80;
const STEPS_WITHOUT_TERMINAL = 10;
const ERASE_LINE = '\r\u001b[2K';

export class TerminalProgress {
  readonly #title: string;
  readonly #output: ProgressOutput;
  #step = 0;
  #isDrawn = false;

  constructor(title: string, output: ProgressOutput) {
    this.#title = title;
    this.#output = output;
  }

  /** Shows a new state. */
  show(progress: DownloadProgress): void {
    if (this.#output.isTTY === true) {
      const line = terminalLine(this.#title, progress);
      const width = (this.#output.columns ?? DEFAULT_COLUMNS) - 1;
      this.#output.write(`${ERASE_LINE}${line.slice(0, width)}`);
      this.#isDrawn = true;
      return;
    }
    const step = Math.floor(progress.fraction * STEPS_WITHOUT_TERMINAL);
    if (step <= this.#step) return;
    this.#step = step;
    this.#output.write(`${plainLine(this.#title, progress)}\n`);
  }

  /** Replaces the line with a last word; the cursor then stands on a fresh line. */
  end(message: string): void {
    this.#output.write(`${this.#isDrawn ? ERASE_LINE : ''}${message}\n`);
    this.#isDrawn = false;
  }
}

function terminalLine(title: string, progress: DownloadProgress): string {
  const filled = Math.round(progress.fraction * BAR_CHARACTERS);
  const bar = '█'.repeat(filled) + '░'.repeat(BAR_CHARACTERS - filled);
  return `${title} ${bar} ${plainFigures(progress)}`;
}

function plainLine(title: string, progress: DownloadProgress): string {
  return `${title}: ${plainFigures(progress)}`;
}

function plainFigures(progress: DownloadProgress): string {
  const percent = `${Math.floor(progress.fraction * 100)} %`;
  const total = progress.bytesTotal === undefined ? '' : ` of ${size(progress.bytesTotal)}`;
  const rate = `${size(progress.bytesPerSecond)}/s`;
  const left = progress.secondsLeft === undefined ? '' : `, ${duration(progress.secondsLeft)} left`;
  return `${percent}, ${size(progress.bytesDone)}${total}, ${rate}${left}`;
}

/** `639 MB`; decimal units, as disks and networks are sold. */
function size(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1_000 && unit < units.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function duration(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.ceil(seconds / 60)} min`;
  return `${(seconds / 3_600).toFixed(1)} h`;
}
