/** How far a long command is: a line that is drawn again on a terminal, one every tenth elsewhere. */
import type { Console } from './command.ts';

/** Goes back to the beginning of the line and empties it. */
const CLEAR = '\r\u001b[2K';

export interface Progress {
  show(what: string, done: number, total: number): void;
  /** Takes the line away; `says` takes its place. */
  end(says?: string): void;
}

export function progressOf({ stderr }: Console): Progress {
  const isTerminal = stderr.isTTY === true;
  let shown = '';
  let step = 0;
  return {
    show: (what, done, total) => {
      if (what !== shown) step = 0;
      shown = what;
      const percent = total <= 0 ? 100 : Math.min(100, Math.floor((100 * done) / total));
      const line = `${what}: ${percent} %, ${Math.min(done, Math.max(0, total))} of ${total}`;
      if (isTerminal) stderr.draw?.(`${CLEAR}${line}`);
      else if (Math.floor(percent / 10) > step) stderr.write(`${line}\n`);
      step = Math.floor(percent / 10);
    },
    end: (says) => {
      if (isTerminal) stderr.draw?.(CLEAR);
      if (says !== undefined) stderr.write(`${says}\n`);
    },
  };
}
