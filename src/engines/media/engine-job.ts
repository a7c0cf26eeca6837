/** Jobs of asynchronous engines: their states, and how a job that is given up is removed. */
import type { EngineCall, EngineFailure, Engines } from '../engines.ts';

/** Statuses in the spellings of OpenAI and of other servers, in lower case. */
const STATES = {
  done: new Set(['completed', 'complete', 'succeeded', 'success', 'done', 'finished', 'ready']),
  ended: new Set(
    (
      'failed failure error errored cancelled canceled aborted expired ' +
      'timeout timed_out rejected refused moderated content_moderated deleted'
    ).split(' '),
  ),
  running: new Set(
    (
      'queued in_queue pending waiting scheduled accepted created submitted starting ' +
      'started preparing in_progress running processing generating rendering encoding uploading'
    ).split(' '),
  ),
};

/** `undefined` for a status that is not known. */
export function stateOf(status: string): keyof typeof STATES | undefined {
  const name = status.trim().toLowerCase();
  if (STATES.running.has(name)) return 'running';
  if (STATES.done.has(name)) return 'done';
  return STATES.ended.has(name) ? 'ended' : undefined;
}

/** Statuses of engines that do not have the route; for a job that is gone, 404 too. */
export function hasNoRoute({ status }: EngineFailure): boolean {
  return status === 404 || status === 405 || status === 501;
}

/** Deletes a job at the path of `call`, or cancels it there; failures are ignored. */
export async function removeJob(engines: Engines, call: EngineCall): Promise<void> {
  const deleted = await engines.collect({ ...call, method: 'DELETE', signal: undefined });
  if (deleted.ok || !hasNoRoute(deleted)) return;
  const path = `${call.path}/cancel`;
  await engines.collect({ ...call, method: 'POST', path, signal: undefined });
}
