/** The dialog that starts a batch: reads a file, uploads it with progress and starts the batch. */
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { callOnce } from '../api.ts';
import { type BatchFile, estimateOf, readBatchFile } from '../batch-file.ts';
import { bytesText, percentText, usdDecimals, usdText } from '../format.ts';
import { useModels } from '../lookups.ts';
import { Drop } from '../parts/file-drop.tsx';
import { Form, ErrorMessage, useAction } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Bar, Count, Facts } from '../parts/values.tsx';
import type { Batch, StoredFile } from '../shapes.ts';
import { upload } from '../upload.ts';

interface NewBatchProps {
  readonly close: () => void;
  readonly started: (id: string) => void;
}

interface Chosen {
  readonly file: File;
  /** `undefined` while the file is read. */
  readonly read: BatchFile | undefined;
}

const UNREADABLE: BatchFile = {
  endpoint: '',
  models: new Map(),
  problems: ['The file cannot be read'],
};

export function NewBatch({ close, started }: NewBatchProps) {
  const chosen = useSignal<Chosen | undefined>(undefined);
  const share = useSignal<number | undefined>(undefined);
  const action = useAction();
  const reading = useRef<AbortController>(undefined);
  const sending = useRef<AbortController>(undefined);
  const uploaded = useRef<{ readonly file: File; readonly id: string }>(undefined);
  // Closing the dialog aborts the upload.
  useEffect(
    () => () => {
      reading.current?.abort();
      sending.current?.abort();
    },
    [],
  );
  const take = ([file]: readonly File[]): void => {
    if (file === undefined) return;
    reading.current?.abort();
    const { signal } = (reading.current = new AbortController());
    chosen.value = { file, read: undefined };
    action.clear();
    readBatchFile(file, signal).then(
      (read) => {
        if (!signal.aborted) chosen.value = { file, read };
      },
      () => {
        if (!signal.aborted) chosen.value = { file, read: UNREADABLE };
      },
    );
  };
  const { file, read } = chosen.value ?? {};
  const isReady = read !== undefined && read.problems.length === 0;
  /** Uploads a file once; a retry of the start reuses the upload. */
  const send = async (one: File): Promise<string> => {
    if (uploaded.current?.file === one) return uploaded.current.id;
    const form = new FormData();
    form.set('purpose', 'batch');
    form.set('file', one, one.name);
    share.value = 0;
    const { signal } = (sending.current = new AbortController());
    const onProgress = (sent: number): void => {
      share.value = sent;
    };
    const { id } = await upload<StoredFile>('/files', form, { signal, onProgress });
    uploaded.current = { file: one, id };
    return id;
  };
  const start = (): void => {
    if (file === undefined || read === undefined) return;
    void action.run(async () => {
      try {
        const id = await send(file);
        const body = { input_file_id: id, endpoint: read.endpoint, completion_window: '24h' };
        const batch = await callOnce<Batch>('/batches', body);
        started(batch.id);
      } finally {
        share.value = undefined;
      }
    });
  };
  return (
    <Overlay title="Start a batch" close={close}>
      <Form submit={start}>
        <Drop
          label="File of requests"
          hint="One JSON object per line, with custom_id, method, url and body."
          accept=".jsonl,.ndjson,.txt,application/jsonl,application/x-ndjson"
          take={take}
          isBusy={share.value !== undefined}
        />
        {file !== undefined && <FileFacts file={file} read={read} />}
        {share.value !== undefined && (
          <div role="status">
            <Bar part={share.value} whole={1} label="Uploaded" isCap={false} />
            <p class="hint num">
              {share.value < 1 ? `${percentText(share.value, 1)} uploaded` : 'Starting…'}
            </p>
          </div>
        )}
        <ErrorMessage error={action.error} />
        <p class="row end">
          <button type="submit" class="primary" disabled={!isReady || action.isRunning}>
            Upload and start
          </button>
        </p>
      </Form>
    </Overlay>
  );
}

function FileFacts({ file, read }: { file: File; read: BatchFile | undefined }) {
  if (read === undefined) return <p role="status">Reading {file.name}…</p>;
  const { endpoint, models, problems } = read;
  return (
    <>
      <Facts
        of={[
          ['File', <span class="text">{`${file.name}, ${bytesText(file.size)}`}</span>],
          endpoint !== '' && ['Endpoint', <span class="text">{endpoint}</span>],
          ...[...models].map(
            ([name, use]) => [`Requests to ${name}`, <Count value={use.requests} />] as const,
          ),
        ]}
      />
      {problems.length === 0 ? (
        <Cost read={read} />
      ) : (
        <div class="notice bad" role="alert">
          <ul>
            {problems.map((problem) => (
              <li key={problem}>{problem}</li>
            ))}
          </ul>
        </div>
      )}
    </>
  );
}

function Cost({ read }: { read: BatchFile }) {
  const estimate = estimateOf(read, useModels());
  return (
    <p class="soft">
      {estimate === undefined ? (
        <>
          The cost is known after the run. See the prices on <a href="/console/models">Models</a>.
        </>
      ) : (
        `About ${roughly(estimate.promptsUsd)} for the prompts, and at most ${roughly(estimate.completionsUsd)} for completions.`
      )}{' '}
      Each request is charged when it completes. Requests that do not run cost nothing.
    </p>
  );
}

function roughly(usd: number): string {
  return usdText(usd, usdDecimals([usd]));
}
