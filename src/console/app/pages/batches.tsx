/** Batches: how far each is and what it cost, starting one and ending one. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useEffect } from 'preact/hooks';
import { call, query } from '../api.ts';
import { countText, percentText, usdText } from '../format.ts';
import { type CursorList, useCursorList } from '../cursor-list.ts';
import { CodeBlock, CodeTabs } from '../parts/code.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Bar, Copy, Facts, Id, State } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, CursorTable, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { jsonSamples } from '../samples.ts';
import type { Batch, StoredFile } from '../shapes.ts';
import { At, Download, Files } from './batch-files.tsx';
import { NewBatch } from './new-batch.tsx';

const LOOK_MS = 3_000;
/** More than may be open. */
const LATEST = 100;
const OPEN: readonly string[] = ['validating', 'in_progress', 'finalizing', 'cancelling'];

export function Batches() {
  const { query: given, path, route } = useLocation();
  const { open } = given;
  const list = useCursorList<Batch>('/batches');
  const files = useCursorList<StoredFile>('/files?limit=20');
  const isMaking = useSignal(false);
  const latest = useLatest(list);
  const rows = list.rows.map((batch) => latest.get(batch.id) ?? batch);
  const show = (id: string): void => route(path + query({ open: id }));
  const ended = rows.filter((batch) => !isOpen(batch)).length;
  // A batch that ends has files.
  useEffect(() => files.first.reload(), [ended]);
  const renew = (): void => {
    list.first.reload();
    files.first.reload();
  };
  return (
    <>
      <PageHead
        title="Batches"
        lead="Many requests in one file, run within 24 hours when engines have room, at a lower price."
      >
        <button type="button" class="primary" onClick={() => (isMaking.value = true)}>
          Start a batch
        </button>
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
          close={() => route(path, true)}
          changed={renew}
        />
      )}
      {isMaking.value && (
        <NewBatch
          close={() => (isMaking.value = false)}
          started={(id) => {
            isMaking.value = false;
            renew();
            show(id);
          }}
        />
      )}
    </>
  );
}

function isOpen({ status }: Batch): boolean {
  return OPEN.includes(status);
}

/** Those that run as they are now, asked again and again until all have ended. */
function useLatest({ rows }: CursorList<Batch>): ReadonlyMap<string, Batch> {
  const latest = useSignal<ReadonlyMap<string, Batch>>(new Map());
  const isRunning = rows.some((batch) => isOpen(latest.value.get(batch.id) ?? batch));
  useEffect(() => {
    if (!isRunning) return undefined;
    const look = (): void => {
      if (document.hidden) return;
      call<{ data: readonly Batch[] }>(`/batches?limit=${LATEST}`).then(
        ({ data }) => (latest.value = new Map(data.map((batch) => [batch.id, batch]))),
        () => undefined, // the next look may see them
      );
    };
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }, [isRunning]);
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
      <Empty title="There is no batch yet">
        <p>
          Put one request in each line of a file, start a batch of it here, and come back for the
          answers. Each request is charged when its answer is there.
        </p>
      </Empty>
      <section>
        <h2>A line of the file</h2>
        <CodeBlock title="questions.jsonl" text={JSON.stringify(EXAMPLE_LINE)} />
      </section>
      <section>
        <h2>A batch of an uploaded file, by a program</h2>
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
          <button type="button" class="link strong" onClick={() => show(id)}>
            <At seconds={created} />
          </button>
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
    figure('Cost', (batch) => costOf(batch)),
    { name: 'Ends by', kind: 'wide', show: (batch) => <Ends batch={batch} /> },
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
    <div class="cap">
      <Bar part={ended} whole={total} label="Requests that have ended" isCap={false} />
      <span class="num under">
        {countText(ended)} of {countText(total)}
        <span class="wide">, {percentText(ended, total)}</span>
      </span>
    </div>
  );
}

function Ends({ batch }: { batch: Batch }) {
  if (isOpen(batch)) return <At seconds={batch.expires_at} ago />;
  return <span class="soft">–</span>;
}

function costOf({ cost }: Batch): string {
  return cost === undefined ? '–' : usdText(cost.usd + cost.diem);
}

interface BatchDrawerProps {
  readonly id: string;
  /** When the list has it. */
  readonly known: Batch | undefined;
  readonly close: () => void;
  readonly changed: () => void;
}

function BatchDrawer({ id, known, close, changed }: BatchDrawerProps) {
  const path = `/batches/${encodeURIComponent(id)}`;
  const asked = useCall<Batch>(known === undefined ? path : undefined);
  const isEnding = useSignal(false);
  return (
    <Overlay kind="drawer" title="Batch" close={close}>
      {known === undefined ? (
        <Loaded from={asked}>{(data) => <BatchFacts batch={data} />}</Loaded>
      ) : (
        <BatchFacts batch={known} />
      )}
      {known !== undefined && isOpen(known) && known.status !== 'cancelling' && (
        <p class="row">
          <button type="button" class="danger" onClick={() => (isEnding.value = true)}>
            Cancel the batch
          </button>
        </p>
      )}
      {isEnding.value && (
        <Confirm
          title="Cancel the batch"
          does="Cancel it"
          keeps="Let it run"
          says="The batch is ending"
          close={() => (isEnding.value = false)}
          run={() => call(`${path}/cancel`, { method: 'POST' })}
          done={() => {
            isEnding.value = false;
            changed();
          }}
        >
          <p>
            Requests that run now come to their end and are charged; the others do not run. What was
            answered by then can be downloaded.
          </p>
        </Confirm>
      )}
    </Overlay>
  );
}

function BatchFacts({ batch }: { batch: Batch }) {
  const { id, endpoint, usage, metadata, errors } = batch;
  const { input_file_id: input, output_file_id: output, error_file_id: failures } = batch;
  const { total, completed, failed } = batch.request_counts;
  const ended =
    batch.completed_at ?? batch.failed_at ?? batch.expired_at ?? batch.cancelled_at ?? null;
  return (
    <>
      <p class="total">
        <span class="figure num">{costOf(batch)}</span>
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
          <Download id={output} name={`${id}-answers.jsonl`}>
            Download {countText(completed)} {completed === 1 ? 'answer' : 'answers'}
          </Download>
        )}
        {failures !== null && (
          <Download id={failures} name={`${id}-errors.jsonl`}>
            Download {countText(failed)} {failed === 1 ? 'error' : 'errors'}
          </Download>
        )}
        <Download id={input} name={`${id}-requests.jsonl`}>
          Download the requests
        </Download>
      </p>
      {errors !== null && (
        <div class="notice bad">
          <p>Nothing ran: the file is not in order.</p>
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
          ['Requests', <span class="num">{countText(total)}</span>],
          ['Answered', <span class="num">{countText(completed)}</span>],
          ['Failed or not run', <span class="num">{countText(failed)}</span>],
          usage !== undefined && [
            'Tokens in and out',
            <span class="num">
              {countText(usage.input_tokens)}, {countText(usage.output_tokens)}
            </span>,
          ],
          ['Endpoint', <span class="text">{endpoint}</span>],
          [
            'Id',
            <>
              <Id value={id} ends={8} /> <Copy text={id} />
            </>,
          ],
          ...Object.entries(metadata ?? {}).map(
            ([name, value]) => [name, <span class="text">{value}</span>] as const,
          ),
        ]}
      />
      <h3>Time</h3>
      <Facts
        of={[
          ['Started', <At seconds={batch.created_at} />],
          ['Runs since', <At seconds={batch.in_progress_at} />],
          ended === null
            ? ['Ends by', <At seconds={batch.expires_at} ago />]
            : ['Ended', <At seconds={ended} />],
        ]}
      />
    </>
  );
}
