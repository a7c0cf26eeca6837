/** The video tab: quote, job, progress and result, and the latest jobs. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, call, callOnce, errorOf, send } from '../api.ts';
import { jsonSamples } from '../code-samples.ts';
import { durationText, percentText, usdText } from '../format.ts';
import { Drop } from '../parts/file-drop.tsx';
import { ErrorMessage, Form, Select, TextArea, useAction } from '../parts/form.tsx';
import { Bar, OpenButton, State, Time } from '../parts/values.tsx';
import { Empty, Failure, Loaded } from '../parts/loaded.tsx';
import { useResource } from '../resource.ts';
import type { List, Model } from '../shapes.ts';
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
/** Constraints of a model that become selects: its member, the request parameter, and the label. */
const CHOICES = [
  ['durations', 'duration', 'Duration'],
  ['resolutions', 'resolution', 'Resolution'],
  ['aspect_ratios', 'aspect_ratio', 'Aspect ratio'],
  ['upscale_factors', 'upscale_factor', 'Upscale factor'],
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
  const requestQuote = (): void => {
    void action.run(async () => {
      // The quote route accepts no prompt and no image.
      const { prompt: _prompt, image_url: _image, ...rest } = body as Record<string, unknown>;
      const { quote: usd } = await call<{ quote: number }>('/video/quote', {
        method: 'POST',
        body: rest,
      });
      quote.value = { usd, of: stamp };
    });
  };
  const order = (): void => {
    void action.run(async () => {
      // Only these members, because the job is the body of later requests.
      const { model, queue_id } = await callOnce<Job>('/video/queue', body);
      job.value = { model, queue_id };
    });
  };
  const constraints = constraintsOf(choice.model);
  const takesImage = constraints['model_type'] === 'image-to-video';
  const takesVideo = constraints['model_type'] === 'video';
  return (
    <div class="split">
      <Form submit={isQuoted ? order : requestQuote}>
        <ModelSelect choice={choice} />
        {!takesVideo && (
          <TextArea
            label="Prompt"
            hint="Description of the video."
            rows={4}
            value={prompt.value}
            onInput={(value) => (prompt.value = value)}
          />
        )}
        {(takesImage || takesVideo) && (
          <Drop
            label={takesVideo ? 'Video' : 'First image'}
            hint={source.value === '' ? 'Sent with the request.' : 'Selected.'}
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
        {action.error !== undefined && <Failure error={action.error} />}
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
          The server holds or charges the quoted price when the job is queued, and returns it if the
          job fails.
        </p>
      </Form>
      <section aria-label="Result">
        {job.value === undefined ? (
          <Empty
            title={
              choice.model === undefined ? 'No video model is available' : 'Your video appears here'
            }
          />
        ) : (
          <VideoResult key={job.value.queue_id} job={job.value} />
        )}
        <Jobs open={(one) => (job.value = one)} newest={job.value?.queue_id} />
      </section>
    </div>
  );
}

function constraintsOf(model: Model | undefined): Readonly<Record<string, unknown>> {
  return model?.model_spec.constraints ?? {};
}

function bodyOf(
  model: Model | undefined,
  prompt: string,
  source: string,
  chosen: Readonly<Record<string, string>>,
): Readonly<Record<string, unknown>> {
  const constraints = constraintsOf(model);
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

/** Polls a job until it ends, and shows its progress and its video. */
function VideoResult({ job }: { job: Job }) {
  const progress = useSignal<Progress>({ status: 'PROCESSING' });
  const video = useSignal<Blob | undefined>(undefined);
  const failure = useSignal<ApiError | undefined>(undefined);
  const action = useAction();
  useEffect(() => {
    const abort = new AbortController();
    const poll = async (): Promise<void> => {
      while (!abort.signal.aborted) {
        const response = await send('/video/retrieve', {
          method: 'POST',
          body: job,
          signal: abort.signal,
        });
        if (!response.ok) throw await errorOf(response);
        if (response.headers.get('content-type')?.startsWith('video/') === true) {
          video.value = await response.blob();
          progress.value = { status: 'COMPLETED', progress: 1 };
          return;
        }
        progress.value = (await response.json()) as Progress; // documented by the route
        if (progress.value.status !== 'PROCESSING') return;
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      }
    };
    poll().catch((error: unknown) => {
      if (!abort.signal.aborted) failure.value = ApiError.of(error);
    });
    return () => abort.abort();
  }, [job.queue_id]);
  const url = useObjectUrl(video.value);
  const { status, progress: share = 0, remaining_time: leftMs } = progress.value;
  const cancel = (): void => {
    void action.run(async () => {
      await call('/video/cancel', { method: 'POST', body: { queue_id: job.queue_id } });
    });
  };
  if (failure.value !== undefined) return <Failure error={failure.value} />;
  if (url !== undefined) {
    return (
      <figure class="result-video">
        <video src={url} controls playsInline aria-label="Video" />
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
        <State value={status} /> {percentText(share, 1)}
        {leftMs !== undefined && `, about ${durationText(leftMs)} left`}
      </p>
      <Bar part={share} whole={1} label="Progress of the video" isCap={false} />
      <ErrorMessage error={action.error} />
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
    call<List<JobItem>>('/video/jobs?limit=10', { signal }),
  );
  return (
    <Loaded from={jobs}>
      {({ data }) =>
        data.length > 0 && (
          <section>
            <h2>Your jobs</h2>
            <ul class="jobs">
              {data.map((one) => (
                <li key={one.queue_id}>
                  <OpenButton open={() => open({ model: one.model, queue_id: one.queue_id })}>
                    <Time iso={one.created_at} />
                  </OpenButton>
                  <span class="text">{one.model}</span>
                  <State value={one.status} />
                </li>
              ))}
            </ul>
          </section>
        )
      }
    </Loaded>
  );
}
