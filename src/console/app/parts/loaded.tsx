/** What a page shows when there is nothing, nothing yet, a refusal, or no server. */
import type { ComponentChildren } from 'preact';
import type { ApiError } from '../api.ts';
import type { Resource } from '../resource.ts';
import { durationText } from '../format.ts';
import { Copy } from './values.tsx';

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="title">{title}</p>
      {children}
    </div>
  );
}

/** A list whose filters leave nothing of it. */
export function NothingFits({ title, clear }: { title: string; clear: () => void }) {
  return (
    <Empty title={title}>
      <button type="button" onClick={clear}>
        Show all
      </button>
    </Empty>
  );
}

/** Lines in the place of what is coming. */
export function Loading({ rows = 6 }: { rows?: number }) {
  return (
    <div class="loading" role="status">
      <span class="unseen">Loading</span>
      {Array.from({ length: rows }, (_, at) => (
        <span key={at} class="line" style={{ width: `${92 - ((at * 37) % 40)}%` }} />
      ))}
    </div>
  );
}

export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  const isOffline = error.status === 0;
  return (
    <div class="failure" role="alert">
      <p class="title">{isOffline ? 'The server cannot be reached' : error.message}</p>
      <p class="soft">
        {isOffline
          ? 'It may be restarting, or your connection is gone. What is on the screen is kept.'
          : `${error.code}, status ${error.status}`}
        {error.retryAfter !== undefined &&
          `. Try again in ${durationText(error.retryAfter * 1_000)}`}
      </p>
      <p class="row">
        {retry !== undefined && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
        {error.requestId !== undefined && <Copy text={error.requestId} label="Copy request id" />}
      </p>
    </div>
  );
}

interface LoadedProps<T> {
  readonly from: Resource<T>;
  readonly rows?: number;
  readonly children: (data: T) => ComponentChildren;
}

/** What was loaded; before it lines, after a failure the words of it above what was there. */
export function Loaded<T>({ from, rows, children }: LoadedProps<T>) {
  const { data, error, reload } = from;
  return (
    <>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {data === undefined ? error === undefined && <Loading rows={rows ?? 6} /> : children(data)}
    </>
  );
}

export function Notice({ tone = '', children }: { tone?: string; children: ComponentChildren }) {
  return <div class={`notice ${tone}`}>{children}</div>;
}
