/** The playground: every kind of work of the service, tried by hand. One tab for each. */
import { useRoute } from 'preact-iso';
import { useEffect, useRef } from 'preact/hooks';
import { PageHead } from '../parts/page-head.tsx';
import { Chat } from '../playground/chat.tsx';
import { Cutout } from '../playground/cutout.tsx';
import { Embeddings } from '../playground/embeddings.tsx';
import { Transcription } from '../playground/transcription.tsx';
import { Video } from '../playground/video.tsx';

const KINDS = [
  ['chat', 'Chat', Chat],
  ['embeddings', 'Embeddings', Embeddings],
  ['background', 'Background removal', Cutout],
  ['transcription', 'Transcription', Transcription],
  ['video', 'Video', Video],
] as const;

export function Playground() {
  const { params } = useRoute();
  const kind = params['kind'] ?? 'chat';
  const [name, , Shown] = KINDS.find(([one]) => one === kind) ?? KINDS[0];
  const tabs = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone the tabs scroll; the one that is shown must be in sight.
    const shown = tabs.current?.querySelector('[aria-current]');
    shown?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [name]);
  return (
    <>
      <PageHead
        title="Playground"
        lead="Real requests, charged like any other; each shows what it cost."
      />
      <nav class="tabs" ref={tabs} aria-label="Kinds of work">
        {KINDS.map(([one, title]) => (
          <a
            key={one}
            href={`/console/playground${one === 'chat' ? '' : `/${one}`}`}
            aria-current={one === name ? 'page' : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      <Shown />
    </>
  );
}
