/** How far a long command is: a line that is drawn again on a terminal, one every tenth elsewhere. */
import type { Console } from './command.ts';

export interface Progress {
  show(what: string, done: number, total: number): void;
  /** Takes the line away; `says` takes its place. */
  end(says?: string): void;
}

export function progressOf({ stderr }: Console): Progress {
  const isTerminal = stderr.isTTY === true;
  const clear = isTerminal ? '\r\u001b[2K' : '';
  let shown = '';
  let step = 0;
  return {
    show: (what, done, total) => {
      if (what !== shown) step = 0;
      shown = what;
      const percent = total <= 0 ? 100 : Math.min(100, Math.floor((100 * done) / total));
      const line = `${what}: ${percent} %, ${Math.min(done, Math.max(0, total))} of ${total}`;
      if (isTerminal) stderr.write(`${clear}${line}`);
      else if (Math.floor(percent / 10) > step) stderr.write(`${line}\n`);
      step = Math.floor(percent / 10);
    },
    end: (says) => {
      if (says !== undefined || isTerminal)
        stderr.write(`${clear}${says === undefined ? '' : `${says}\n`}`);
    },
  };
}
