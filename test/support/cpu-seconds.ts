/**
 * CPU time of a process and its children: from /proc on Linux, elsewhere from Node. Ended children
 * without a waiting parent are missing, mostly renderer processes of a browser.
 */
import { readFileSync, readdirSync } from 'node:fs';

/** Clock ticks per second, the same on every Linux. */
const TICKS = 100;
/**
 * Fields of `/proc/<pid>/stat` after the name: the parent, and the times of the process and of its
 * ended children.
 */
const PARENT = 1;
const TIMES = 11;
const TIMES_END = 15;

/** Times in seconds. */
export function cpuSeconds(root: number): number {
  const processes = runningProcesses();
  if (processes.size === 0) {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000_000;
  }
  let ticks = 0;
  for (const [pid, one] of processes) {
    let above: number | undefined = pid;
    while (above !== undefined && above !== root) above = processes.get(above)?.parent;
    if (above === root) ticks += one.ticks;
  }
  return ticks / TICKS;
}

function runningProcesses(): Map<number, { readonly parent: number; readonly ticks: number }> {
  const found = new Map<number, { parent: number; ticks: number }>();
  for (const name of processNames()) {
    const fields = fieldsOf(name);
    if (fields === undefined) continue;
    const ticks = fields.slice(TIMES, TIMES_END).reduce((sum, field) => sum + Number(field), 0);
    found.set(Number(name), { parent: Number(fields[PARENT]), ticks });
  }
  return found;
}

function processNames(): string[] {
  try {
    return readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  } catch {
    // There is no /proc on this system.
    return [];
  }
}

function fieldsOf(pid: string): readonly string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name is in brackets and can contain any character.
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    // The process has ended, or there is no /proc.
    return undefined;
  }
}
