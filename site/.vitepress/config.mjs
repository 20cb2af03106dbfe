// The documentation site. Its pages are the Markdown of ../docs, unchanged: GitHub shows the same
// text. Links to files that are not pages lead to the repository.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const repository = 'https://github.com/cronce-io/cronce'
const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..')
const docs = join(root, 'docs')

// CRONCE_VERSION is the version that the pages describe, like v0.1.0, and CRONCE_BASE the path
// under which they are served, like /v0.1/.
const version = process.env.CRONCE_VERSION || 'main'
const base = process.env.CRONCE_BASE || '/'

// anchor is GitHub's name of a heading, so that a link with an anchor works there and here.
const anchor = (heading) => heading.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M}_ -]/gu, '').replace(/ /g, '-')

// ref is the tag or commit that links to the repository name.
const ref = version === 'main' ? 'main' : version

// markdown changes the links of a page to files that the site does not have, and lets no page be
// a template: {{.Error}} in a page is text.
function markdown(md) {
  md.core.ruler.push('repository-links', (state) => {
    for (const token of state.tokens.flatMap((t) => t.children ?? [])) {
      if (token.type === 'link_open') token.attrSet('href', target(token.attrGet('href'), state.env))
    }
  })
  const code = md.renderer.rules.code_inline
  md.renderer.rules.code_inline = (tokens, i, ...rest) => {
    tokens[i].attrSet('v-pre', '')
    return code(tokens, i, ...rest)
  }
}

// target is where a link of a page leads on the site.
function target(href, env) {
  if (/^[a-z]+:|^#|^\//.test(href)) return href
  const [path, hash] = href.split('#')
  const file = resolve(dirname(env.realPath ?? env.path), path)
  if (file.startsWith(docs + sep) && file.endsWith('.md')) return href
  const kind = statSync(file).isDirectory() ? 'tree' : 'blob'
  return `${repository}/${kind}/${ref}/${relative(root, file)}${hash ? '#' + hash : ''}`
}

const pages = (...list) => list.map(([text, link]) => ({ text, link }))

// The versions that publish.sh builds: [{"name": "main", "dir": ""}, {"name": "v0.2", "dir": "v0.2/"}].
// VitePress puts the base before a link, and that of a release is one folder deeper than that of main.
const published = join(root, 'site/versions.json')
const versions = existsSync(published) ? JSON.parse(readFileSync(published, 'utf8')) : []
const top = version === 'main' ? '/' : '/../'

export default defineConfig({
  title: 'Cronce',
  description: 'cron, once: a job scheduler without a leader, on NATS JetStream',
  base,
  lang: 'en',
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: `${base}icon.svg` }]],
  srcDir: '../docs',
  outDir: process.env.CRONCE_SITE || './dist',
  cacheDir: './.vitepress/cache',
  vite: {
    publicDir: process.env.CRONCE_PUBLIC,
    // The pages stand outside this folder, where Node.js does not find its packages.
    resolve: { alias: [{ find: /^vue(\/server-renderer)?$/, replacement: join(root, 'site/node_modules/vue$1') }] },
  },
  cleanUrls: false,
  lastUpdated: false,
  markdown: {
    anchor: { slugify: anchor },
    toc: { slugify: anchor },
    headers: { slugify: anchor },
    config: markdown,
    languageAlias: { crontab: 'bash' },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: repository }],
    nav: [
      { text: 'Guide', link: '/guide' },
      { text: 'Try a schedule', link: '/playground' },
      { text: 'Commands', link: '/cli' },
      versions.length
        ? { text: version, items: versions.map((v) => ({ text: v.name, link: top + v.dir, target: '_self' })) }
        : { text: version, link: `${repository}/blob/${ref}/CHANGELOG.md` },
    ],
    sidebar: [
      { text: 'Begin', items: pages(['Install', '/install'], ['Concepts', '/concepts'], ['Guide', '/guide'], ['Go client', '/client'], ['Dashboard', '/dashboard'], ['HTTP API', '/api']) },
      { text: 'Come from elsewhere', items: pages(['When to use it', '/comparison'], ['Migration', '/migration'], ['From River and others', '/from-river']) },
      { text: 'Reference', items: pages(['Job files', '/configuration'], ['Commands', '/cli'], ['Metrics', '/metrics'], ['Stability', '/stability']) },
      { text: 'Operate', items: pages(['Operations', '/operations'], ['Kubernetes', '/kubernetes'], ['Threat model', '/threat-model'], ['Scale', '/scale'], ['Benchmarks', '/benchmarks']) },
      { text: 'Other languages', items: pages(['Protocol', '/protocol'], ['Conformance', '/conformance'], ['Commands of cronce-lab', '/lab']) },
      { text: 'Decisions', link: '/decisions/README' },
    ].map(({ items, ...group }) => ({ ...group, ...(items && { items: items.filter(({ link }) => existsSync(join(docs, link + '.md'))) }) })),
    footer: { message: 'Apache-2.0' },
  },
})
