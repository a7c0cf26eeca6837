/** Video: a quote, the order, the job's progress, the film; and the jobs of before. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, call, refusalOf, send } from '../api.ts';
import { durationText, percentText, usdText } from '../format.ts';
import { Drop } from '../parts/file-drop.tsx';
import { Field, Form, Refusal, Select, useAction } from '../parts/form.tsx';
import { Bar, State, Time } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { useResource } from '../resource.ts';
import { jsonSamples } from '../samples.ts';
import type { Model } from '../shapes.ts';
import { CodeButton, ModelSelect, dataUrlOf, useModelChoice, useObjectUrl } from './parts.tsx';

interface Job {
  readonly model: string;
  readonly queue_id: string;
}

interface JobItem extends Job {
  readonly status: string;
  readonly created_at: string;
}

interface Progress {
  readonly status: string;
  readonly progress?: number;
  readonly remaining_time?: number;
}

const POLL_MS = 4_000;
/** What a model lists of these is a choice. */
const CHOICES = [
  ['durations', 'duration', 'Duration'],
  ['resolutions', 'resolution', 'Resolution'],
  ['aspect_ratios', 'aspect_ratio', 'Shape'],
  ['upscale_factors', 'upscale_factor', 'Factor'],
] as const;

export function Video() {
  const choice = useModelChoice('video');
  const prompt = useSignal('');
  const source = useSignal('');
  const chosen = useSignal<Readonly<Record<string, string>>>({});
  const quote = useSignal<{ readonly usd: number; readonly of: string } | undefined>(undefined);
  const job = useSignal<Job | undefined>(undefined);
  const action = useAction();
  const body = bodyOf(choice.model, prompt.value, source.value, chosen.value);
  const stamp = JSON.stringify(body);
  const isQuoted = quote.value?.of === stamp;
  const ask = (): void => {
    void action.run(async () => {
      // A quote takes no prompt and no media.
      const { prompt: _prompt, image_url: _image, ...rest } = body as Record<string, unknown>;
      const answer = await call<{ quote: number }>('/video/quote', { method: 'POST', body: rest });
      quote.value = { usd: answer.quote, of: stamp };
    });
  };
  const order = (): void => {
    void action.run(async () => {
      // What names the job, and no more of the answer: the job is the body of later requests.
      const { model, queue_id } = await call<Job>('/video/queue', { method: 'POST', body });
      job.value = { model, queue_id };
    });
  };
  const constraints = choice.model?.model_spec.constraints ?? {};
  const takesImage = constraints['model_type'] === 'image-to-video';
  const takesVideo = constraints['model_type'] === 'video';
  return (
    <div class="split">
      <Form submit={isQuoted ? order : ask}>
        <ModelSelect choice={choice} />
        {!takesVideo && (
          <Field label="Prompt" hint="What is to be seen.">
            {(attributes) => (
              <textarea
                {...attributes}
                rows={4}
                value={prompt.value}
                onInput={(event) => (prompt.value = event.currentTarget.value)}
              />
            )}
          </Field>
        )}
        {(takesImage || takesVideo) && (
          <Drop
            label={takesVideo ? 'The video' : 'The first picture'}
            hint={source.value === '' ? 'Sent with the order.' : 'Ready.'}
            accept={takesVideo ? 'video/*' : 'image/*'}
            take={([file]) => {
              if (file !== undefined) void dataUrlOf(file).then((url) => (source.value = url));
            }}
          />
        )}
        {CHOICES.map(([list, field, label]) => {
          const values = constraints[list];
          if (!Array.isArray(values) || values.length === 0) return null;
          return (
            <Select
              key={field}
              label={label}
              value={chosen.value[field] ?? String(values[0])}
              options={values.map((one) => [String(one), String(one)] as const)}
              onInput={(one) => (chosen.value = { ...chosen.value, [field]: one })}
            />
          );
        })}
        <Refusal error={action.error} />
        <p class="row">
          <button
            type="submit"
            class="primary"
            disabled={action.isRunning || choice.model === undefined}
          >
            {isQuoted ? `Order for ${usdText(quote.value?.usd ?? 0)}` : 'Get a quote'}
          </button>
          <CodeButton samples={() => jsonSamples('/video/queue', body)} />
        </p>
        <p class="hint">
          The quote is set aside when you order, charged when the film is there, and given back when
          it fails.
        </p>
      </Form>
      <section aria-label="Result">
        {job.value === undefined ? (
          <Empty
            title={
              choice.model === undefined ? 'No video model is on offer' : 'Your film appears here'
            }
          />
        ) : (
          <Film key={job.value.queue_id} job={job.value} />
        )}
        <Jobs open={(one) => (job.value = one)} newest={job.value?.queue_id} />
      </section>
    </div>
  );
}

function bodyOf(
  model: Model | undefined,
  prompt: string,
  source: string,
  chosen: Readonly<Record<string, string>>,
): Readonly<Record<string, unknown>> {
  const constraints = model?.model_spec.constraints ?? {};
  const body: Record<string, unknown> = { model: model?.id ?? '' };
  for (const [list, field] of CHOICES) {
    const values = constraints[list];
    if (!Array.isArray(values) || values.length === 0) continue;
    const text = chosen[field] ?? String(values[0]);
    body[field] = field === 'upscale_factor' ? Number(text) : text;
  }
  if (constraints['model_type'] === 'video') body['video_url'] = source;
  else {
    body['prompt'] = prompt;
    if (source !== '') body['image_url'] = source;
  }
  return body;
}

/** One job, asked about until it is over. */
function Film({ job }: { job: Job }) {
  const progress = useSignal<Progress>({ status: 'PROCESSING' });
  const film = useSignal<Blob | undefined>(undefined);
  const failure = useSignal<ApiError | undefined>(undefined);
  const action = useAction();
  useEffect(() => {
    const abort = new AbortController();
    const look = async (): Promise<void> => {
      while (!abort.signal.aborted) {
        const answer = await send('/video/retrieve', {
          method: 'POST',
          body: job,
          signal: abort.signal,
        });
        if (!answer.ok) throw await refusalOf(answer);
        if (answer.headers.get('content-type')?.startsWith('video/') === true) {
          film.value = await answer.blob();
          progress.value = { status: 'COMPLETED', progress: 1 };
          return;
        }
        progress.value = (await answer.json()) as Progress; // as the route promises
        if (progress.value.status !== 'PROCESSING') return;
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      }
    };
    look().catch((error: unknown) => {
      if (!abort.signal.aborted) failure.value = ApiError.of(error);
    });
    return () => abort.abort();
  }, [job.queue_id]);
  const url = useObjectUrl(film.value);
  const { status, progress: share = 0, remaining_time: leftMs } = progress.value;
  const cancel = (): void => {
    void action.run(async () => {
      await call('/video/cancel', { method: 'POST', body: { queue_id: job.queue_id } });
    });
  };
  if (failure.value !== undefined) return <Refusal error={failure.value} />;
  if (url !== undefined) {
    return (
      <figure class="film">
        <video src={url} controls playsInline aria-label="The film" />
        <figcaption class="row">
          <State value={status} />
          <a href={url} download={`${job.queue_id}.mp4`}>
            Download
          </a>
        </figcaption>
      </figure>
    );
  }
  return (
    <div class="job" role="status">
      <p>
        <State value={status} tone="warn" /> {percentText(share, 1)}
        {leftMs !== undefined && `, about ${durationText(leftMs)} left`}
      </p>
      <Bar part={share} whole={1} label="Progress of the film" isCap={false} />
      <Refusal error={action.error} />
      {status === 'PROCESSING' && (
        <button type="button" class="small" disabled={action.isRunning} onClick={cancel}>
          Cancel
        </button>
      )}
    </div>
  );
}

function Jobs({ open, newest }: { open: (job: Job) => void; newest: string | undefined }) {
  const jobs = useResource(`jobs ${newest ?? ''}`, (signal) =>
    call<{ data: readonly JobItem[] }>('/video/jobs?limit=10', { signal }),
  );
  return (
    <Loaded from={jobs} rows={2}>
      {({ data }) =>
        data.length > 0 && (
          <>
            <h2>Your jobs</h2>
            <ul class="jobs">
              {data.map((one) => (
                <li key={one.queue_id}>
                  <button
                    type="button"
                    class="link"
                    onClick={() => open({ model: one.model, queue_id: one.queue_id })}
                  >
                    <Time iso={one.created_at} />
                  </button>
                  <span class="text">{one.model}</span>
                  <State value={one.status} />
                </li>
              ))}
            </ul>
          </>
        )
      }
    </Loaded>
  );
}
