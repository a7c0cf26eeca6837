/** Progress output: one line that is redrawn on a terminal, one line per minute elsewhere. */
import { type Clock, MINUTE_MS, systemClock } from '../core/clock.ts';
import type { DownloadProgress } from '../engines/embedded/model-download.ts';
import type { DownloadView } from '../engines/embedded/model-files.ts';
import type { TextOutput } from './terminal.ts';

const BAR_CHARACTERS = 24;
const DEFAULT_COLUMNS = 80;
const EVERY_MS = MINUTE_MS;
/** Moves to the start of the line and clears it. */
const ERASE_LINE = '\r\u001b[2K';

export class Progress {
  readonly #output: TextOutput;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #writtenMs: number;
  #isDrawn = false;

  constructor(output: TextOutput, clock: Pick<Clock, 'monotonicMs'> = systemClock()) {
    this.#output = output;
    this.#clock = clock;
    this.#writtenMs = clock.monotonicMs();
  }

  /** `drawn`: the text on a terminal. */
  #show(line: string, drawn = line): void {
    if (this.#output.isTTY === true) {
      const width = (this.#output.columns ?? DEFAULT_COLUMNS) - 1;
      this.#output.draw?.(`${ERASE_LINE}${drawn.slice(0, width)}`);
      this.#isDrawn = true;
      return;
    }
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#writtenMs < EVERY_MS) return;
    this.#writtenMs = nowMs;
    this.#output.write(`${line}\n`);
  }

  count(title: string, done: number, total: number): void {
    const percent = total <= 0 ? 100 : Math.min(100, Math.floor((100 * done) / total));
    const figures = `${Math.min(done, Math.max(0, total))} of ${total}`;
    this.#show(`${title}: ${percent} %, ${figures}`);
  }

  download(title: string, progress: DownloadProgress): void {
    const { fraction, bytesDone, bytesTotal, bytesPerSecond, secondsLeft } = progress;
    const filled = Math.round(fraction * BAR_CHARACTERS);
    const bar = '█'.repeat(filled) + '░'.repeat(BAR_CHARACTERS - filled);
    const total = bytesTotal === undefined ? '' : ` of ${size(bytesTotal)}`;
    const left = secondsLeft === undefined ? '' : `, ${duration(secondsLeft)} left`;
    const figures = `${Math.floor(fraction * 100)} %, ${size(bytesDone)}${total}, ${size(bytesPerSecond)}/s${left}`;
    this.#show(`${title}: ${figures}`, `${title} ${bar} ${figures}`);
  }

  /** Clears a drawn line and writes `message`. */
  end(message?: string): void {
    if (this.#isDrawn) this.#output.draw?.(ERASE_LINE);
    this.#isDrawn = false;
    if (message !== undefined) this.#output.write(`${message}\n`);
  }
}

/** Shows downloads of a server on a terminal; elsewhere its log reports them. */
export function serverDownloads(output: TextOutput) {
  return output.isTTY === true ? downloadViews(output, 'download finished') : undefined;
}

/** `endText`: written when a download is complete. */
export function downloadViews(output: TextOutput, endText?: string) {
  return (title: string): DownloadView => {
    const progress = new Progress(output);
    return {
      update: (state) => progress.download(title, state),
      end: (isDone) => progress.end(isDone && endText ? `${title}: ${endText}` : undefined),
    };
  };
}

/** `639 MB`, in decimal units. */
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
