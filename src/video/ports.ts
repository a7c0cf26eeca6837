/**
 * What the video jobs are handed: engines that make videos, the look at a film before it is sold,
 * the ledger's part in a change of state, and a guarded way to call a caller's webhook.
 */
import type { Queryable } from '../db/db.ts';
import type { VideoJob } from './job.ts';

/** Where a job is ordered: an engine, and the name that it gives the model. */
export interface EnginePlace {
  readonly engine: string;
  readonly engineModel: string;
}

/** A job of an engine: enough to find it again after a restart. */
export interface EngineRef extends EnginePlace {
  readonly engineJobId: string;
}

/** A job as an engine gets it. */
export interface EngineOrder {
  readonly job: VideoJob;
  /** The media, by the field that it came in. */
  readonly inputs: readonly {
    readonly role: string;
    readonly path: string;
    readonly mimeType: string;
  }[];
  /**
   * Called before anything goes to an engine, with the place it will go to. `false`: the job is
   * somebody else's by now, and nothing may be sent.
   */
  readonly beforeOrder: (place: EnginePlace) => Promise<boolean>;
}

/**
 * - `policy`: it calls the content unfit
 * - `request`: it does not take the prompt or the options
 * - `media`: it cannot read what was given
 * - `engine`: it cannot make videos, whatever is asked of it
 */
export type EngineObjection = 'policy' | 'request' | 'media' | 'engine';

/** `detail` is for the log only: it holds the words of an engine. */
interface Told {
  readonly detail: string;
}

/** It answers that it has no time now. */
export interface EngineBusy extends Told {
  readonly kind: 'busy';
  readonly retryAfterMs: number | undefined;
}

/** It does not answer, or not in its protocol. */
export interface EngineAway extends Told {
  readonly kind: 'away';
}

/**
 * - `refused`: nothing is being made, and asking again does not help
 * - `unclear`: it may be making the video, and the answer is lost
 * - `not-ours`: `beforeOrder` said no
 */
export type CreateAnswer =
  | ({ readonly kind: 'created' } & EngineRef)
  | ({ readonly kind: 'refused'; readonly objection: EngineObjection } & Told)
  | ({ readonly kind: 'unclear' } & Told)
  | { readonly kind: 'not-ours' }
  | EngineBusy
  | EngineAway;

/** `unknown`: no engine shows it; those that keep no list say so too. */
export type FindAnswer =
  | ({ readonly kind: 'created' } & EngineRef)
  | { readonly kind: 'unknown' }
  | EngineAway;

/** `lost`: the engine does not know the job (any more). */
export type PollAnswer =
  | { readonly kind: 'running'; readonly fraction: number }
  | { readonly kind: 'done' }
  | ({ readonly kind: 'failed'; readonly objection: EngineObjection } & Told)
  | { readonly kind: 'lost' }
  | EngineBusy
  | EngineAway;

export type DownloadAnswer =
  | { readonly kind: 'done' }
  | { readonly kind: 'lost' }
  | EngineBusy
  | EngineAway;

/** None of these throws for what an engine does; a throw is a bug or an abort. */
export interface VideoEngines {
  /** Orders the video: at the job's own place when it has one. */
  create(order: EngineOrder, signal: AbortSignal): Promise<CreateAnswer>;
  /** Looks for the video of an order whose answer was lost. */
  find(job: VideoJob, signal: AbortSignal): Promise<FindAnswer>;
  poll(ref: EngineRef, signal: AbortSignal): Promise<PollAnswer>;
  /** Writes the video to `path`. */
  download(ref: EngineRef, path: string, signal: AbortSignal): Promise<DownloadAnswer>;
  /** Lets the engine forget the job; nothing happens when that fails. */
  remove(ref: EngineRef): Promise<void>;
}

/**
 * - `unfit`: the file is no film, or not the one that was ordered
 * - `unchecked`: this machine has nothing to look at films with
 *
 * The reason is for the log: it speaks of the engine.
 */
export type FilmVerdict =
  | { readonly kind: 'fit'; readonly mimeType: string }
  | { readonly kind: 'unfit' | 'unchecked'; readonly reason: string };

/**
 * Looks at the file at `path` before it is sold. `sourcePath` is the video that the job starts from,
 * if any. Throws for an abort, and for a bug.
 */
export type CheckFilm = (
  film: { readonly job: VideoJob; readonly path: string; readonly sourcePath: string | undefined },
  signal: AbortSignal,
) => Promise<FilmVerdict>;

/**
 * The money of a job. `hold` sets the quote aside so that it outlives the process, and throws the
 * refusal when there is not enough. `settle` and `refund` run inside the transaction that makes the
 * job final, so that exactly one of them counts, once.
 */
export interface VideoMoney {
  hold(job: VideoJob): Promise<void>;
  settle(tx: Queryable, job: VideoJob): Promise<void>;
  refund(tx: Queryable, job: VideoJob): Promise<void>;
}

/** Posts to a public address only; resolves to the status, rejects when there is no answer. */
export type PostWebhook = (
  url: string,
  body: string,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
) => Promise<number>;
