/** The batches page: progress and cost of batches, starting one and cancelling one. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { jsonSamples } from '../code-samples.ts';
import { countText, percentText } from '../format.ts';
import { type CursorList, useCursorList } from '../cursor-list.ts';
import { CodeBlock, CodeTabs } from '../parts/code.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import {
  Bar,
  CopyId,
  Count,
  Facts,
  Id,
  LabelledBar,
  NONE,
  OpenButton,
  State,
  Usd,
} from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, CursorTable, figure, money } from '../parts/table.tsx';
import { useCall, useInterval } from '../resource.ts';
import type { Batch, List, StoredFile } from '../shapes.ts';
import { At, Download, Files } from './batch-files.tsx';
import { NewBatch } from './new-batch.tsx';

const REFRESH_MS = 3_000;
/** More batches than can be open at once. */
const LATEST = 100;
const OPEN: readonly string[] = ['validating', 'in_progress', 'finalizing', 'cancelling'];

export function Batches() {
  const { open, show, close } = useAddress();
  const list = useCursorList<Batch>('/batches');
  const files = useCursorList<StoredFile>('/files?limit=20');
  const latest = useLatest(list);
  const rows = list.rows.map((batch) => latest.get(batch.id) ?? batch);
  const ended = rows.filter((batch) => !isOpen(batch)).length;
  // The end of a batch creates result files.
  useEffect(() => files.first.reload(), [ended]);
  const reload = (): void => {
    list.first.reload();
    files.first.reload();
  };
  return (
    <>
      <PageHead
        title="Batches"
        lead="Files of requests that run within 24 hours, when engines have free capacity, at a lower price."
      >
        <DialogButton label="Start a batch" class="primary">
          {(closeDialog) => (
            <NewBatch
              close={closeDialog}
              started={(id) => {
                closeDialog();
                reload();
                show(id);
              }}
            />
          )}
        </DialogButton>
      </PageHead>
      <CursorTable
        label="Batches"
        list={{ ...list, rows }}
        empty={<FirstBatch />}
        columns={columnsOf(show, files.rows)}
        keyOf={({ id }) => id}
        open={({ id }) => show(id)}
      />
      {files.rows.length > 0 && <Files list={files} />}
      {open !== undefined && (
        <BatchDrawer
          key={open}
          id={open}
          known={rows.find(({ id }) => id === open)}
          files={files.rows}
          close={close}
          changed={reload}
        />
      )}
    </>
  );
}

function isOpen({ status }: Batch): boolean {
  return OPEN.includes(status);
}

/** The current state of batches by id; refreshed while one of them is open. */
function useLatest({ rows }: CursorList<Batch>): ReadonlyMap<string, Batch> {
  const latest = useSignal<ReadonlyMap<string, Batch>>(new Map());
  const isRunning = rows.some((batch) => isOpen(latest.value.get(batch.id) ?? batch));
  useInterval(isRunning ? REFRESH_MS : undefined, () => {
    call<List<Batch>>(`/batches?limit=${LATEST}`).then(
      ({ data }) => (latest.value = new Map(data.map((batch) => [batch.id, batch]))),
      () => undefined, // the next call may succeed
    );
  });
  return latest.value;
}

const EXAMPLE_LINE = {
  custom_id: 'sky',
  method: 'POST',
  url: '/v1/chat/completions',
  body: {
    model: 'default',
    messages: [{ role: 'user', content: 'Why is the sky blue?' }],
    max_completion_tokens: 100,
  },
};

function FirstBatch() {
  return (
    <>
      <Empty title="No batches yet">
        <p>
          Write one request per line into a file and start a batch with it. Download the responses
          when the batch has ended. Each request is charged when it completes.
        </p>
      </Empty>
      <section>
        <h2>Example: one line of the file</h2>
        <CodeBlock title="questions.jsonl" text={JSON.stringify(EXAMPLE_LINE)} />
      </section>
      <section>
        <h2>Example: start a batch from code</h2>
        <CodeTabs
          samples={jsonSamples('/batches', {
            input_file_id: 'file-…',
            endpoint: EXAMPLE_LINE.url,
            completion_window: '24h',
          })}
        />
      </section>
    </>
  );
}

function columnsOf(
  show: (id: string) => void,
  files: readonly StoredFile[],
): readonly Column<Batch>[] {
  const names = new Map(files.map(({ id, filename }) => [id, filename]));
  return [
    {
      name: 'Batch',
      show: ({ id, created_at: created, endpoint, input_file_id: input }) => (
        <>
          <OpenButton isStrong open={() => show(id)}>
            <At seconds={created} />
          </OpenButton>
          <span class="under text">{names.get(input) ?? endpoint}</span>
        </>
      ),
    },
    {
      name: 'State',
      show: (batch) => (
        <>
          <BatchState batch={batch} />
          <Done batch={batch} />
        </>
      ),
    },
    figure('Failed', ({ request_counts: { failed } }) => countText(failed), 'wide'),
    money('Cost', costOf),
    {
      name: 'Ends by',
      kind: 'wide',
      show: (batch) => (isOpen(batch) ? <At seconds={batch.expires_at} ago /> : NONE),
    },
  ];
}

function BatchState({ batch: { status } }: { batch: Batch }) {
  return <State value={status.replace('_', ' ')} />;
}

function Done({ batch }: { batch: Batch }) {
  const { total, completed, failed } = batch.request_counts;
  if (total === 0) return null;
  const ended = completed + failed;
  return (
    <LabelledBar part={ended} whole={total} label="Requests that have ended" isCap={false}>
      {countText(ended)} of {countText(total)}
      <span class="wide">, {percentText(ended, total)}</span>
    </LabelledBar>
  );
}

function costOf({ cost }: Batch): number | null {
  return cost === undefined ? null : cost.usd + cost.diem;
}

interface BatchDrawerProps {
  readonly id: string;
  /** The batch, if the list contains it. */
  readonly known: Batch | undefined;
  readonly files: readonly StoredFile[];
  readonly close: () => void;
  readonly changed: () => void;
}

function BatchDrawer({ id, known, files, close, changed }: BatchDrawerProps) {
  const path = `/batches/${encodeURIComponent(id)}`;
  const loaded = useCall<Batch>(known === undefined ? path : undefined);
  return (
    <Overlay kind="drawer" title="Batch" close={close}>
      <Loaded from={{ ...loaded, data: known ?? loaded.data }}>
        {(data) => <BatchFacts batch={data} files={files} />}
      </Loaded>
      {known !== undefined && isOpen(known) && known.status !== 'cancelling' && (
        <div class="row">
          <DialogButton label="Cancel the batch" class="danger">
            {(closeDialog) => (
              <Confirm
                title="Cancel the batch"
                label="Cancel the batch"
                cancel="Keep it running"
                notice="The batch is being cancelled"
                close={closeDialog}
                run={() => call(`${path}/cancel`, { method: 'POST' })}
                done={() => {
                  closeDialog();
                  changed();
                }}
              >
                <p>
                  Running requests complete and are charged. The other requests do not run. You can
                  download the responses that exist.
                </p>
              </Confirm>
            )}
          </DialogButton>
        </div>
      )}
    </Overlay>
  );
}

interface BatchFactsProps {
  readonly batch: Batch;
  readonly files: readonly StoredFile[];
}

function BatchFacts({ batch, files }: BatchFactsProps) {
  const { id, endpoint, usage, metadata, errors } = batch;
  const { input_file_id: input, output_file_id: output, error_file_id: failures } = batch;
  const listed = files.find((file) => file.id === input);
  // The list has the latest files only, and a file can be deleted.
  const found = useCall<StoredFile>(
    listed === undefined ? `/files/${encodeURIComponent(input)}` : undefined,
  );
  const file = listed ?? found.data;
  const { total, completed, failed } = batch.request_counts;
  const ended =
    batch.completed_at ?? batch.failed_at ?? batch.expired_at ?? batch.cancelled_at ?? null;
  return (
    <>
      <p class="total">
        <span class="figure num">
          <Usd value={costOf(batch)} />
        </span>
        <BatchState batch={batch} />
      </p>
      {total > 0 && (
        <Bar
          part={completed + failed}
          whole={total}
          label="Requests that have ended"
          isCap={false}
        />
      )}
      <p class="row">
        {output !== null && (
          <Download id={output} name={`${id}-responses.jsonl`}>
            Download {countText(completed)} {completed === 1 ? 'response' : 'responses'}
          </Download>
        )}
        {failures !== null && (
          <Download id={failures} name={`${id}-errors.jsonl`}>
            Download {countText(failed)} {failed === 1 ? 'error' : 'errors'}
          </Download>
        )}
        {file !== undefined && (
          <Download id={input} name={file.filename}>
            Download the requests
          </Download>
        )}
      </p>
      {errors !== null && (
        <div class="notice bad">
          <p>No request ran, because the file is not valid:</p>
          <ul>
            {errors.data.map(({ line, param, message }) => (
              <li key={`${line} ${param} ${message}`}>
                {line !== null && `Line ${line}: `}
                {param !== null && <code>{param}</code>} {message}
              </li>
            ))}
          </ul>
        </div>
      )}
      <Facts
        of={[
          ['Requests', <Count value={total} />],
          ['Completed', <Count value={completed} />],
          ['Failed or not run', <Count value={failed} />],
          usage !== undefined && ['Input tokens', <Count value={usage.input_tokens} />],
          usage !== undefined && ['Output tokens', <Count value={usage.output_tokens} />],
          ['Endpoint', <span class="text">{endpoint}</span>],
          [
            'File',
            file === undefined ? (
              <Id value={input} ends={8} />
            ) : (
              <span class="text" title={input}>
                {file.filename}
              </span>
            ),
          ],
          ['Id', <CopyId value={id} />],
          ...Object.entries(metadata ?? {}).map(
            ([name, value]) => [name, <span class="text">{value}</span>] as const,
          ),
        ]}
      />
      <h3>Time</h3>
      <Facts
        of={[
          ['Created', <At seconds={batch.created_at} />],
          ['Started', <At seconds={batch.in_progress_at} />],
          ended === null
            ? ['Ends by', <At seconds={batch.expires_at} ago />]
            : ['Ended', <At seconds={ended} />],
        ]}
      />
    </>
  );
}
